// Paths of the API. Only this module builds them, so no name can change the rest of a path.

/** A path of the API. Each segment is one name, whatever characters it holds. */
export function apiPath(...segments: string[]): string {
  // Browsers resolve `.` and `..` even if they are escaped.
  if (segments.some((one) => one === '' || one === '.' || one === '..')) throw new Error('This address names nothing.');
  return segments.map((one) => `/${encodeURIComponent(one)}`).join('');
}

/** The path of a collection, in a namespace if one is named. */
export function collectionPath(of: { group: string; version: string; plural: string }, namespace = ''): string {
  const root = of.group === '' ? ['api'] : ['apis', of.group];
  const scope = namespace === '' ? [] : ['namespaces', namespace];
  return apiPath(...root, of.version, ...scope, of.plural);
}

export function objectPath(
  of: { group: string; version: string; plural: string },
  namespace: string,
  name: string,
  ...below: string[]
): string {
  return collectionPath(of, namespace) + apiPath(name, ...below);
}
