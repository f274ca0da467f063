// A watch that delivers changes in batches. After a break it resumes after the last delivered change.

import { readJson } from '../lib/json';
import { ApiError, isAborted, send, TABLE } from './client';
import { rowsOf } from './lists';
import type { Row, Status, Table, WatchEvent } from './types';

/** A change of one object, as a row of the list. */
export interface Change {
  kind: 'ADDED' | 'MODIFIED' | 'DELETED';
  row: Row;
}

export interface Follower {
  changed(changes: Change[]): void;
  /** The changes since the beginning can't be told: only a new list helps. */
  lost(why: 'gone' | 'many'): void;
  /** Whether changes arrive: not while the watch is broken. */
  live?(is: boolean): void;
}

/** How long changes are gathered, in milliseconds. */
const GATHERED = 150;
/** More changes than these within a gathering time are not told one by one. */
const MOST_AT_ONCE = 500;
/** The longest event, in characters. Objects are shorter. */
const LONGEST_LINE = 16 << 20;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;

async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const more = decoder.decode(value, { stream: true });
      // A line without an end is not gathered for ever.
      if (rest.length + more.length > LONGEST_LINE) throw new Error('an event is too long');
      // Only what is new can have an end in it.
      if (!more.includes('\n')) {
        rest += more;
        continue;
      }
      const lines = (rest + more).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) if (line !== '') yield line;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

const waited = (milliseconds: number, signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });

/** Follows a collection from a snapshot on, until the signal says to stop. */
export async function follow(
  path: string,
  params: URLSearchParams,
  revision: string,
  follower: Follower,
  signal: AbortSignal,
): Promise<void> {
  let at = revision;
  let gathered: Change[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  const state = { lost: false };
  const tell = () => {
    timer = undefined;
    const changes = gathered;
    gathered = [];
    if (signal.aborted || state.lost) return;
    if (changes.length > MOST_AT_ONCE) {
      state.lost = true;
      follower.lost('many');
    } else follower.changed(changes);
  };
  let wait = FIRST_WAIT;
  while (!signal.aborted) {
    try {
      const search = new URLSearchParams(params);
      search.set('watch', '1');
      search.set('resourceVersion', at);
      search.set('allowWatchBookmarks', 'true');
      const response = await send(`${path}?${search.toString()}`, { accept: TABLE, signal });
      if (response.body === null) return;
      follower.live?.(true);
      for await (const line of linesOf(response.body)) {
        wait = FIRST_WAIT;
        const event = readJson(line) as WatchEvent<Table | Status>;
        if (event.type === 'ERROR') {
          const status = event.object as Status;
          throw new ApiError(status.code ?? 500, status, 'the watch failed');
        }
        const table = event.object as Table;
        // The row of a bookmark belongs to no object.
        const row = event.type === 'BOOKMARK' ? table.rows?.[0] : rowsOf(table)[0];
        at = row?.object.metadata.resourceVersion ?? event.object.metadata?.resourceVersion ?? at;
        if (event.type === 'BOOKMARK' || row === undefined) continue;
        gathered.push({ kind: event.type, row });
        timer ??= setTimeout(tell, GATHERED);
        // Limits the batch, however fast changes arrive.
        if (gathered.length > MOST_AT_ONCE) {
          clearTimeout(timer);
          tell();
          return;
        }
      }
    } catch (error) {
      if (isAborted(error)) return;
      follower.live?.(false);
      if (error instanceof ApiError) {
        if (error.code === 410) follower.lost('gone');
        if (error.code !== 429 && error.code < 500) return;
        wait = Math.max(wait, error.retryAfter * 1000);
      }
    }
    await waited(wait, signal);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }
}
