// The list of each resource as it was seen last, with its filters and order, for the way up from an object.

export const lastList = new Map<string, string>();

/** The address of the list that an object belongs to, as it was seen last. */
export function lastListOf(of: { group: string; version: string; plural: string }): string | undefined {
  return lastList.get(`${of.group}/${of.version}/${of.plural}`);
}
