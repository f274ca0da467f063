// The state of the connection: since when the server does not answer, and when it is asked again.
//
// A request that gets no answer, or one of a server that has too much to do, is noted here. The server is then asked
// for its version until it answers; all pages read their data again after that.

import { store } from '../state/store';

export interface Connection {
  /** Why requests fail; empty while they do not. */
  why: string;
  /** Since when, in milliseconds. */
  since: number;
  /** When the server is asked again. */
  next: number;
  /** Counts the times at which the server came back. */
  returned: number;
}

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 15_000;

export const connection = store<Connection>({ why: '', since: 0, next: 0, returned: 0 });

let timer: ReturnType<typeof setTimeout> | undefined;
let wait = FIRST_WAIT;
/** When the server came back last. */
let back = 0;

/** Whether an answer says that a server, or what is before it, can't serve now. */
export function isAway(code: number): boolean {
  return code === 502 || code === 503 || code === 504;
}

async function answers(): Promise<boolean> {
  try {
    const response = await fetch('/version', { cache: 'no-store', redirect: 'error', referrerPolicy: 'no-referrer' });
    return !isAway(response.status);
  } catch {
    return false;
  }
}

function later(): void {
  clearTimeout(timer);
  timer = setTimeout(() => void askAgain(), wait);
  connection.set({ ...connection.get(), next: Date.now() + wait });
  wait = Math.min(wait * 2, LONGEST_WAIT);
}

/** Notes that the server did not answer. */
export function noteAway(why: string): void {
  const now = connection.get();
  if (now.why !== '') return;
  // If only some requests fail, the server answers again at once. The waits then grow each time.
  if (Date.now() - back > 4 * LONGEST_WAIT) wait = FIRST_WAIT;
  connection.set({ ...now, why, since: Date.now() });
  later();
}

/** Asks now whether the server is there again. */
export async function askAgain(): Promise<void> {
  clearTimeout(timer);
  timer = undefined;
  const isBack = await answers();
  const now = connection.get();
  if (now.why === '') return;
  if (isBack) back = Date.now();
  if (isBack) connection.set({ why: '', since: 0, next: 0, returned: now.returned + 1 });
  else later();
}

window.addEventListener('online', () => void askAgain());
