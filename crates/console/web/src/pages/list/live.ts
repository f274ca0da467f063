// The shown page with the changes since it was read: changed rows are updated in place, new and deleted ones are
// counted.

import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { isAborted } from '../../api/client';
import { collectionPath } from '../../api/paths';
import { type ListQuery, type Page, pathOf, readPage, selection } from '../../api/lists';
import type { Row } from '../../api/types';
import { takes } from '../../api/extension';
import { type Change, follow, type Follower } from '../../api/watch';
import { go, href, type Place } from '../../state/router';
import { isPast, queryOf } from './query';

export interface Changes {
  /** Rows of the page as they are now, by uid. */
  rows: Map<string, Row>;
  deleted: Set<string>;
  /** How many objects were made, changed and deleted since the snapshot, on this page or elsewhere. */
  counts: { added: number; modified: number; deleted: number };
  lost: 'gone' | 'many' | null;
  /** Since when changes do not arrive; null while they do. */
  brokenSince: number | null;
}

const NONE: Changes = {
  rows: new Map(),
  deleted: new Set(),
  counts: { added: 0, modified: 0, deleted: 0 },
  lost: null,
  brokenSince: null,
};

export interface Shown {
  query: ListQuery;
  page: Page | null;
  error: unknown;
  busy: boolean;
  changes: Changes;
}

export function uidOf(row: Row): string {
  const meta = row.object.metadata;
  return meta.uid ?? `${meta.namespace ?? ''}/${meta.name}`;
}

function applied(before: Changes, changes: Change[], here: Set<string>): Changes {
  const next: Changes = {
    rows: new Map(before.rows),
    deleted: new Set(before.deleted),
    counts: { ...before.counts },
    lost: before.lost,
    brokenSince: null,
  };
  for (const { kind, row } of changes) {
    const uid = uidOf(row);
    next.counts[kind === 'ADDED' ? 'added' : kind === 'DELETED' ? 'deleted' : 'modified'] += 1;
    if (!here.has(uid)) continue;
    if (kind === 'DELETED') next.deleted.add(uid);
    else {
      next.deleted.delete(uid);
      next.rows.set(uid, row);
    }
  }
  return next;
}

export function changeCount({ counts }: Changes): number {
  return counts.added + counts.modified + counts.deleted;
}

/** Reads the page again from the newest state; the place in the list stays. */
export function showNewest(place: Place): void {
  const params = new URLSearchParams(place.params);
  params.delete('rv');
  params.delete('at');
  go(href(place.path, params), { replace: !isPast(place) });
}

/** What is watched: the selection of the list, as far as the server's watches take it. */
async function followed(query: ListQuery): Promise<URLSearchParams> {
  const params = selection({ ...query, revision: '', at: '' });
  for (const name of ['filter', 'where', 'search']) {
    if (params.has(`keelson.io/${name}`) && !(await takes('watch', name))) params.delete(`keelson.io/${name}`);
  }
  return params;
}

/** Reads the page that the place names, and follows what is written from then on. */
export function usePage(place: Place): Shown {
  const [shown, setShown] = useState<Shown>(() => start(place));
  const last = useRef(shown);
  last.current = shown;
  // A layout effect runs before the browser paints, so this request is sent first.
  useLayoutEffect(() => {
    const query = queryOf(place);
    const abort = new AbortController();
    const before = last.current;
    const same = collectionPath(before.query.collection) === collectionPath(query.collection);
    setShown({ ...before, query, page: same ? before.page : null, error: null, busy: true });
    readPage(query, abort.signal)
      .then((page) => {
        if (abort.signal.aborted) return;
        setShown({ query, page, error: null, busy: false, changes: NONE });
        if (isPast(place)) return;
        const snapshot = place.state.snapshot ?? { revision: page.revision, taken: Date.now() };
        // The snapshot is stored in the current history entry, for back and forward.
        window.history.replaceState({ ...place.state, snapshot }, '');
        if (place.state.snapshot === undefined) place.state = { ...place.state, snapshot };
        const here = new Set(page.rows.map(uidOf));
        const change = (next: (before: Changes) => Changes) =>
          setShown((now) => (abort.signal.aborted ? now : { ...now, changes: next(now.changes) }));
        const follower: Follower = {
          changed: (changes) => change((now) => applied(now, changes, here)),
          lost: (why) => change((now) => ({ ...now, lost: why })),
          live: (is) => change((now) => ({ ...now, brokenSince: is ? null : (now.brokenSince ?? Date.now()) })),
        };
        const path = pathOf(query);
        void followed(query).then((params) => follow(path, params, page.revision, follower, abort.signal));
      })
      .catch((error: unknown) => {
        if (!isAborted(error)) setShown((now) => ({ ...now, query, error, busy: false }));
      });
    return () => abort.abort();
    // A change of the view alone reads nothing.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [place.visit]);
  return shown;
}

function start(place: Place): Shown {
  return { query: queryOf(place), page: null, error: null, busy: true, changes: NONE };
}
