// Past states of the list: a slider over the revisions that the server still has, and a link back to the present.

import { useEffect, useRef, useState } from 'preact/hooks';
import { isAborted } from '../../api/client';
import { takes } from '../../api/extension';
import { oldestRevision } from '../../api/objects';
import type { ListQuery, Page } from '../../api/lists';
import { go, place as current, type Place, withParams } from '../../state/router';
import { ago } from '../../lib/time';
import { announce } from '../../ui/announce';
import { showNewest } from './live';
import { isPast } from './query';

/** How long the slider rests before the list is read, in milliseconds. */
const REST = 120;

interface Range {
  oldest: number;
  newest: number;
}

export function TimeTravelButton({ place, page }: { place: Place; page: Page | null }) {
  const past = isPast(place);
  return (
    <button
      type="button"
      aria-pressed={past}
      disabled={page === null}
      title="The list as it was ( t )"
      onClick={() => {
        if (past) showNewest(place);
        else if (page !== null) go(withParams(place, { rv: page.revision }));
      }}
    >
      History
    </button>
  );
}

/** How long ago, in seconds, for those who think in time. */
const AGO = [10, 30, 60, 120, 300, 600, 1800, 3600];

function Moments() {
  const [can, setCan] = useState(false);
  useEffect(() => {
    void takes('list', 'at').then(setCan);
  }, []);
  if (!can) return null;
  const choose = (seconds: number) => {
    const moment = new Date(Date.now() - seconds * 1000).toISOString();
    go(withParams(current.get(), { rv: '', at: moment }));
  };
  return (
    <select aria-label="Or a time" value="" onChange={(event) => choose(Number(event.currentTarget.value))}>
      <option value="">Time…</option>
      {AGO.map((seconds) => (
        <option key={seconds} value={String(seconds)}>
          {ago(seconds * 1000)} ago
        </option>
      ))}
    </select>
  );
}

/** Shown while the list is of the past. */
export function TimeTravel({ place, query, page }: { place: Place; query: ListQuery; page: Page | null }) {
  const [range, setRange] = useState<Range | null>(null);
  // If the URL has a time, the list returns its revision.
  const shown = Number(place.params.get('rv') ?? page?.revision ?? '0');
  const [at, setAt] = useState(shown);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const { group, version, plural } = query.collection;
  const { namespace } = query;
  useEffect(() => setAt(shown), [shown]);
  useEffect(() => {
    const abort = new AbortController();
    // Every write to any resource increases the revision. The revisions of one collection are a subset.
    oldestRevision({ group, version, plural }, namespace, abort.signal)
      .then(({ oldest, newest }) => setRange({ oldest: Number(oldest), newest: Number(newest) }))
      .catch((error: unknown) => {
        if (!isAborted(error)) announce('How far the history goes can not be told', 'failed');
      });
    return () => {
      abort.abort();
      clearTimeout(timer.current);
    };
  }, [group, version, plural, namespace]);
  const choose = (revision: number) => {
    setAt(revision);
    clearTimeout(timer.current);
    timer.current = setTimeout(
      () => go(withParams(current.get(), { rv: String(revision), at: '' }), { replace: true }),
      REST,
    );
  };
  return (
    <div class="travel" role="group" aria-label="The list as it was">
      <strong>Revision {at}</strong>
      {range === null ? (
        <span class="muted">looking how far the history goes…</span>
      ) : (
        <>
          <button
            type="button"
            aria-label="One revision back"
            disabled={at <= range.oldest}
            onClick={() => choose(at - 1)}
          >
            ‹
          </button>
          <input
            type="range"
            aria-label="Revision"
            min={Math.min(range.oldest, at)}
            max={Math.max(range.newest, at)}
            step={1}
            value={at}
            onInput={(event) => choose(Number(event.currentTarget.value))}
          />
          <button
            type="button"
            aria-label="One revision on"
            disabled={at >= range.newest}
            onClick={() => choose(at + 1)}
          >
            ›
          </button>
          <small>
            of {range.oldest} to {range.newest}
          </small>
        </>
      )}
      <Moments />
      <button type="button" class="main" onClick={() => showNewest(place)}>
        Back to now
      </button>
    </div>
  );
}
