// The logs of a pod: of one container or all, followed, searched, and those of the run before.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { isAborted, send } from '../../api/client';
import { objectPath } from '../../api/paths';
import { save } from '../../lib/files';
import { counted } from '../../lib/time';
import { visible } from '../../lib/visible';
import { type Place, withParams, show } from '../../state/router';
import { Icon } from '../../ui/icon';
import { Problem } from '../../ui/problem';
import { containersOf, usualContainer } from './containers-of';
import type { Subject } from './object';

/** How many lines are read at first, kept, and shown. */
const READ = 1000;
const MOST_KEPT = 20_000;
const MOST_SHOWN = 2000;
/** How long lines are gathered before they are shown, in milliseconds. */
const GATHERED = 120;

const PODS = { group: '', version: 'v1', plural: 'pods' };
/** Sequences that colour text in terminals. */
const COLOURS = /\u001b\[[0-9;?]*[ -/]*[@-~]/g;

interface Line {
  container: string;
  time: string;
  text: string;
}

interface Read {
  lines: Line[];
  dropped: number;
  error: unknown;
  live: boolean;
}

function lineOf(container: string, raw: string): Line {
  const space = raw.indexOf(' ');
  const time = raw.slice(0, space);
  const isTime = space > 0 && /^\d{4}-\d\d-\d\dT/.test(time);
  return { container, time: isTime ? time : '', text: (isTime ? raw.slice(space + 1) : raw).replace(COLOURS, '') };
}

async function stream(
  path: string,
  container: string,
  add: (lines: Line[]) => void,
  opened: () => void,
  signal: AbortSignal,
) {
  const response = await send(path, { accept: '*/*', signal });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) return;
  opened();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    rest += done ? '' : value;
    const parts = rest.split('\n');
    rest = done ? '' : (parts.pop() ?? '');
    const whole = parts.filter((one) => one !== '').map((one) => lineOf(container, one));
    if (whole.length > 0) add(whole);
    if (done) return;
    // A line without an end is not gathered for ever.
    if (rest.length > 1 << 20) rest = '';
  }
}

function useLogs(subject: Subject, containers: string[], previous: boolean, follow: boolean): Read {
  const [read, setRead] = useState<Read>({ lines: [], dropped: 0, error: null, live: false });
  const { namespace, name } = subject.of;
  const { uid } = subject.object.metadata;
  const key = containers.join(',');
  useEffect(() => {
    const abort = new AbortController();
    let gathered: Line[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    setRead({ lines: [], dropped: 0, error: null, live: false });
    const flush = () => {
      timer = undefined;
      const more = gathered;
      gathered = [];
      setRead((now) => {
        const all = [...now.lines, ...more];
        // Lines of several containers are put in the order of their times.
        if (key.includes(',')) all.sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0));
        const over = Math.max(0, all.length - MOST_KEPT);
        return { ...now, lines: over === 0 ? all : all.slice(over), dropped: now.dropped + over };
      });
    };
    const add = (lines: Line[]) => {
      gathered.push(...lines);
      timer ??= setTimeout(flush, GATHERED);
    };
    let open = 0;
    for (const container of key.split(',')) {
      const params = new URLSearchParams({ container, tailLines: String(READ), timestamps: 'true' });
      if (previous) params.set('previous', 'true');
      else if (follow) params.set('follow', 'true');
      const path = `${objectPath(PODS, namespace, name, 'log')}?${params.toString()}`;
      const opened = () => {
        open += 1;
        setRead((now) => ({ ...now, live: follow && !previous }));
      };
      stream(path, container, add, opened, abort.signal)
        .then(() => {
          open -= 1;
          if (open <= 0) setRead((now) => ({ ...now, live: false }));
        })
        .catch((error: unknown) => {
          if (!isAborted(error)) setRead((now) => ({ ...now, error, live: false }));
        });
    }
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [namespace, name, uid, key, previous, follow]);
  return read;
}

/** A line with the places of the searched text marked. */
function Marked({ text, search }: { text: string; search: string }) {
  if (search === '') return <>{visible(text)}</>;
  const parts: { text: string; is: boolean }[] = [];
  const [lower, wanted] = [text.toLowerCase(), search.toLowerCase()];
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0 && parts.length < 200; at = lower.indexOf(wanted, from)) {
    parts.push({ text: text.slice(from, at), is: false }, { text: text.slice(at, at + wanted.length), is: true });
    from = at + wanted.length;
  }
  parts.push({ text: text.slice(from), is: false });
  return <>{parts.map((part, at) => (part.is ? <mark key={at}>{visible(part.text)}</mark> : visible(part.text)))}</>;
}

export function Logs({ subject, place }: { subject: Subject; place: Place }) {
  const all = useMemo(() => containersOf(subject.object), [subject.object]);
  const container = place.params.get('container') ?? usualContainer(subject.object);
  const chosen = container === '*' ? all : [container];
  const previous = place.params.get('previous') === '1';
  const [follow, setFollow] = useState(true);
  const [times, setTimes] = useState(false);
  const [search, setSearch] = useState('');
  const [only, setOnly] = useState(false);
  const read = useLogs(subject, chosen, previous, follow);
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const wanted = search.trim().toLowerCase();
  const fitting = useMemo(
    () => (wanted === '' ? read.lines : read.lines.filter((line) => line.text.toLowerCase().includes(wanted))),
    [read.lines, wanted],
  );
  const lines = only && wanted !== '' ? fitting : read.lines;
  const shown = lines.slice(-MOST_SHOWN);
  useEffect(() => {
    if (isAtEnd.current) box.current?.scrollTo(0, box.current.scrollHeight);
  }, [shown.length, read.lines]);
  const set = (changes: Record<string, string>) => show(withParams(place, changes));
  const next = () => {
    const marks = [...(box.current?.querySelectorAll('mark') ?? [])];
    const at = marks.findIndex((one) => one.classList.contains('is-at'));
    marks[at]?.classList.remove('is-at');
    const one = marks[(at + 1) % Math.max(1, marks.length)];
    one?.classList.add('is-at');
    isAtEnd.current = false;
    one?.scrollIntoView({ block: 'center' });
  };
  return (
    <div class="logs">
      <div class="toolbar">
        <label>
          Container{' '}
          <select value={container} onChange={(event) => set({ container: event.currentTarget.value })}>
            {all.map((one) => (
              <option key={one} value={one}>
                {visible(one)}
              </option>
            ))}
            {all.length > 1 && <option value="*">all of them</option>}
          </select>
        </label>
        <input
          type="search"
          aria-label="Search the logs"
          placeholder="Search… ( / )"
          data-shortcut="/"
          spellcheck={false}
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === 'Enter') next();
          }}
        />
        {wanted !== '' && (
          <span role="status" class="muted">
            {counted(fitting.length)} lines
          </span>
        )}
        <label>
          <input type="checkbox" checked={only} onChange={(event) => setOnly(event.currentTarget.checked)} /> only these
        </label>
        <label>
          <input
            type="checkbox"
            checked={follow && !previous}
            disabled={previous}
            onChange={(event) => setFollow(event.currentTarget.checked)}
          />{' '}
          follow
        </label>
        <label>
          <input
            type="checkbox"
            checked={previous}
            onChange={(event) => set({ previous: event.currentTarget.checked ? '1' : '' })}
          />{' '}
          previous run
        </label>
        <label>
          <input type="checkbox" checked={times} onChange={(event) => setTimes(event.currentTarget.checked)} /> times
        </label>
        <button
          type="button"
          disabled={read.lines.length === 0}
          onClick={() =>
            save(
              `${subject.of.name}.log`,
              'text/plain',
              read.lines.map((line) => [line.time, line.text].filter((one) => one !== '').join(' ')).join('\n'),
            )
          }
        >
          Download
        </button>
        {!previous && follow && (
          <span class={read.live ? 'live' : 'not-live'} role="status">
            <Icon name="live" /> {read.live ? 'Live' : 'Not live'}
          </span>
        )}
      </div>
      {read.error !== null && <Problem error={read.error} />}
      {(read.dropped > 0 || lines.length > MOST_SHOWN) && (
        <p class="muted">
          The last {counted(shown.length)} lines are shown.{' '}
          {read.dropped > 0 && `${counted(read.dropped)} older ones are no longer kept here.`}
        </p>
      )}
      <div
        ref={box}
        class="log"
        role="log"
        aria-label={`Logs of ${subject.of.name}`}
        aria-live="off"
        tabIndex={0}
        onScroll={(event) => {
          const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
          isAtEnd.current = scrollHeight - scrollTop - clientHeight < 24;
        }}
      >
        {shown.map((line, at) => (
          <div key={lines.length - shown.length + at + read.dropped} class="log-line">
            {chosen.length > 1 && <span class="log-container">{visible(line.container)}</span>}
            {times && <time>{line.time.replace(/\.\d+Z$/, 'Z')}</time>}
            <span class="text">
              <Marked text={line.text} search={wanted} />
            </span>
          </div>
        ))}
        {shown.length === 0 && read.error === null && <p class="muted">No lines.</p>}
      </div>
    </div>
  );
}
