// Past states of the list: a slider over the revisions that the server still has, and a link back to the present.

import { useEffect, useRef, useState } from 'preact/hooks';
import { getJson, isAborted, METADATA_LIST } from '../../api/client';
import { takes } from '../../api/extension';
import { oldestRevision } from '../../api/objects';
import { collectionPath } from '../../api/paths';
import type { ListQuery, Page } from '../../api/lists';
import { go, place as current, type Place, withParams } from '../../state/router';
import { ago, full } from '../../lib/time';
import { announce } from '../../ui/announce';
import { Sparkline } from './counts';
import { showNewest } from './live';
import { isPast, momentOf } from './query';

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

/** How far back a time can be read, in seconds: the longest of some that the server still has. */
function useReach(query: ListQuery): number {
  const [reach, setReach] = useState(0);
  const { group, version, plural } = query.collection;
  const namespace = query.namespaces.length === 1 ? (query.namespaces[0] ?? '') : '';
  useEffect(() => {
    const abort = new AbortController();
    const find = async () => {
      if (!(await takes('list', 'at'))) return;
      for (const seconds of [...AGO].reverse()) {
        const moment = new Date(Date.now() - seconds * 1000).toISOString();
        const search = new URLSearchParams({ limit: '1', 'keelson.io/at': moment });
        const path = `${collectionPath({ group, version, plural }, namespace)}?${search.toString()}`;
        const has = await getJson(path, { accept: METADATA_LIST, signal: abort.signal }).then(
          () => true,
          () => false,
        );
        if (abort.signal.aborted) return;
        if (has) {
          setReach(seconds);
          return;
        }
      }
    };
    void find();
    return () => abort.abort();
  }, [group, version, plural, namespace]);
  return reach;
}

/** A slider over time: how long ago the list is shown. */
function TimeSlider({ place, query, reach }: { place: Place; query: ListQuery; reach: number }) {
  const shown = momentOf(place.params);
  const [now] = useState(() => Date.now());
  const back = shown === '' ? 0 : Math.max(0, Math.round((now - Date.parse(shown)) / 1000));
  const [seconds, setSeconds] = useState(back);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => setSeconds(back), [back]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const moment = new Date(now - seconds * 1000).toISOString();
  return (
    <label class="moment">
      <time dateTime={moment}>{full(moment)}</time> <small>{ago(seconds * 1000)} ago</small>
      <span class="timeline">
        <Sparkline query={query} reach={reach} now={now} seconds={seconds} />
        <input
          type="range"
          aria-label="Time"
          aria-valuetext={full(moment)}
          min={-Math.max(reach, seconds)}
          max={0}
          step={1}
          value={-seconds}
          onInput={(event) => {
            const next = -Number(event.currentTarget.value);
            setSeconds(next);
            clearTimeout(timer.current);
            timer.current = setTimeout(() => {
              const at = new Date(now - next * 1000).toISOString();
              go(withParams(current.get(), { rv: '', at }), { replace: true });
            }, REST);
          }}
        />
      </span>
    </label>
  );
}

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
  const reach = useReach(query);
  const { group, version, plural } = query.collection;
  const namespace = query.namespaces.length === 1 ? (query.namespaces[0] ?? '') : '';
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
          {reach === 0 && (
            <input
              type="range"
              aria-label="Revision"
              min={Math.min(range.oldest, at)}
              max={Math.max(range.newest, at)}
              step={1}
              value={at}
              onInput={(event) => choose(Number(event.currentTarget.value))}
            />
          )}
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
      {reach > 0 && <TimeSlider place={place} query={query} reach={reach} />}
      {reach === 0 && <Moments />}
      <button type="button" class="main" onClick={() => showNewest(place)}>
        Back to now
      </button>
    </div>
  );
}
