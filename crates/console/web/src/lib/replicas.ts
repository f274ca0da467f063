// Parses a number of replicas that the user has typed.

/** The largest that the API takes: an int32. */
export const MOST_REPLICAS = 2_147_483_647;

/** The number that a text is; null for one that is no whole number from 0 on. An empty text is no number. */
export function replicasOf(text: string): number | null {
  const number = /^\d{1,10}$/.test(text.trim()) ? Number(text) : null;
  return number !== null && number <= MOST_REPLICAS ? number : null;
}
