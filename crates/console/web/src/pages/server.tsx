// The state of the server: its checks, its load, and the admitted, queued and rejected requests of flow control.

import { useEffect, useState } from 'preact/hooks';
import { ApiError, isAborted, send } from '../api/client';
import { isEnded } from '../api/session';
import { bytes, type Metrics, readMetrics, type Sample, sum } from '../lib/metrics';
import { counted } from '../lib/time';
import { Problem } from '../ui/problem';

/** How often it is asked, in milliseconds, and how many answers a line shows. */
const AGAIN = 2000;
const SHOWN = 60;

interface Moment {
  at: number;
  metrics: Metrics;
}

interface Check {
  name: string;
  well: boolean;
}

interface Server {
  moments: Moment[];
  checks: Check[] | null;
  errors: { metrics: unknown; checks: unknown };
}

function readChecks(text: string): Check[] {
  return [...text.matchAll(/^\[([+-])\](\S+)/gm)].map((match) => ({ name: match[2] ?? '', well: match[1] === '+' }));
}

async function checks(signal: AbortSignal): Promise<Check[]> {
  try {
    const response = await send('/readyz?verbose', { accept: '*/*', signal });
    return readChecks(await response.text());
  } catch (error) {
    // A server that is not ready answers with the failed checks.
    if (error instanceof ApiError && error.code === 500) return readChecks(error.message);
    throw error;
  }
}

function useServer(): Server {
  const [server, setServer] = useState<Server>({ moments: [], checks: null, errors: { metrics: null, checks: null } });
  useEffect(() => {
    const abort = new AbortController();
    const failed = (part: 'metrics' | 'checks') => (error: unknown) => {
      if (!isAborted(error)) setServer((now) => ({ ...now, errors: { ...now.errors, [part]: error } }));
    };
    const read = () => {
      if (document.hidden || isEnded()) return;
      send('/metrics', { accept: 'text/plain', signal: abort.signal })
        .then((response) => response.text())
        .then((text) => {
          const moment = { at: performance.now(), metrics: readMetrics(text) };
          const errors = { metrics: null };
          setServer((now) => ({
            ...now,
            moments: [...now.moments, moment].slice(-SHOWN - 1),
            errors: { ...now.errors, ...errors },
          }));
        })
        .catch(failed('metrics'));
      checks(abort.signal)
        .then((found) => setServer((now) => ({ ...now, checks: found, errors: { ...now.errors, checks: null } })))
        .catch(failed('checks'));
    };
    read();
    const timer = setInterval(read, AGAIN);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, []);
  return server;
}

/** How fast a counter grows, a second, between each two moments. */
function rates(moments: Moment[], name: string): number[] {
  return moments.slice(1).map((moment, at) => {
    const before = moments[at];
    const [now, then] = [sum(moment.metrics, name), before === undefined ? undefined : sum(before.metrics, name)];
    if (now === undefined || then === undefined || before === undefined) return 0;
    return Math.max(0, ((now - then) * 1000) / (moment.at - before.at));
  });
}

function values(moments: Moment[], name: string, labels: Record<string, string> = {}): number[] {
  return moments.map((moment) => sum(moment.metrics, name, labels) ?? 0);
}

function Line({ points }: { points: number[] }) {
  const largest = Math.max(1, ...points);
  const step = 200 / Math.max(1, SHOWN - 1);
  const from = 200 - (points.length - 1) * step;
  const path = points.map((value, at) => `${from + at * step},${38 - (36 * value) / largest}`).join(' ');
  return (
    <svg class="line" viewBox="0 0 200 40" preserveAspectRatio="none" aria-hidden="true">
      <polyline points={path} />
    </svg>
  );
}

function Gauge({ title, value, points }: { title: string; value: string; points: number[] }) {
  return (
    <section class="gauge" aria-label={title}>
      <h2>{title}</h2>
      <p>{value}</p>
      <Line points={points} />
    </section>
  );
}

const perSecond = (points: number[]) => `${(points.at(-1) ?? 0).toFixed(1)} /s`;

export function ServerPage() {
  const { moments, checks: found, errors } = useServer();
  useEffect(() => {
    document.title = 'Server · keelson';
  }, []);
  const now = moments.at(-1)?.metrics;
  const requests = rates(moments, 'apiserver_request_total');
  const last = (name: string, labels?: Record<string, string>) =>
    now === undefined ? 0 : (sum(now, name, labels) ?? 0);
  return (
    <section class="server">
      <h1 tabIndex={-1}>Server</h1>
      {errors.metrics !== null && <Problem error={errors.metrics} />}
      {now === undefined && errors.metrics === null && <p class="loading">Loading…</p>}
      {now !== undefined && (
        <>
          <div class="gauges">
            <Gauge title="Requests" value={perSecond(requests)} points={requests} />
            <Gauge
              title="Requests under way"
              value={counted(last('apiserver_current_inflight_requests'))}
              points={values(moments, 'apiserver_current_inflight_requests')}
            />
            <Gauge
              title="Watches"
              value={counted(last('apiserver_longrunning_requests'))}
              points={values(moments, 'apiserver_longrunning_requests')}
            />
            <Gauge
              title="Changes"
              value={perSecond(rates(moments, 'keelson_cache_events_total'))}
              points={rates(moments, 'keelson_cache_events_total')}
            />
            <Gauge
              title="Memory"
              value={bytes(last('process_resident_memory_bytes'))}
              points={values(moments, 'process_resident_memory_bytes')}
            />
            <Gauge
              title="Processor"
              value={`${(100 * (rates(moments, 'process_cpu_seconds_total').at(-1) ?? 0)).toFixed(0)} %`}
              points={rates(moments, 'process_cpu_seconds_total')}
            />
            <Gauge
              title="Connections"
              value={counted(last('keelson_connections'))}
              points={values(moments, 'keelson_connections')}
            />
            <Gauge
              title="History kept"
              value={bytes(last('keelson_cache_history_bytes'))}
              points={values(moments, 'keelson_cache_history_bytes')}
            />
          </div>
          <FlowControl metrics={now} />
          <Largest metrics={now} />
        </>
      )}
      <h2>Checks</h2>
      {errors.checks !== null && <Problem error={errors.checks} />}
      <ul class="checks">
        {found?.map((check) => (
          <li key={check.name} class={check.well ? 'is-true' : 'is-false'}>
            {check.well ? '✓' : '✗'} {check.name}
            <span class="hidden">{check.well ? ' is well' : ' fails'}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

const FLOW = {
  'Seats taken': 'apiserver_flowcontrol_current_executing_seats',
  'Requests let in': 'apiserver_flowcontrol_current_executing_requests',
  Waiting: 'apiserver_flowcontrol_current_inqueue_requests',
  'Turned away': 'apiserver_flowcontrol_rejected_requests_total',
};

function levelOf(sample: Sample): string {
  const { priority_level: level = '', request_kind: kind } = sample.labels;
  return kind === undefined ? level : `${level} (${kind})`;
}

function FlowControl({ metrics }: { metrics: Metrics }) {
  const levels = new Map<string, Record<string, number>>();
  const names = Object.entries(FLOW).filter(([, name]) => metrics.has(name));
  for (const [title, name] of names) {
    for (const sample of metrics.get(name) ?? []) {
      const level = levels.get(levelOf(sample)) ?? {};
      level[title] = (level[title] ?? 0) + sample.value;
      levels.set(levelOf(sample), level);
    }
  }
  if (levels.size === 0) return null;
  return (
    <>
      <h2>Flow control</h2>
      <table class="plain">
        <caption class="hidden">Flow control by level</caption>
        <thead>
          <tr>
            <th scope="col">Level</th>
            {names.map(([title]) => (
              <th scope="col" class="number" key={title}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {[...levels.entries()].map(([level, numbers]) => (
            <tr key={level}>
              <th scope="row">{level}</th>
              {names.map(([title]) => (
                <td class="number" key={title}>
                  {counted(numbers[title] ?? 0)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/** How many collections are named. */
const LARGEST = 10;

function Largest({ metrics }: { metrics: Metrics }) {
  const all = [...(metrics.get('apiserver_storage_objects') ?? [])].filter((sample) => sample.value > 0);
  const largest = all.sort((a, b) => b.value - a.value).slice(0, LARGEST);
  if (largest.length === 0) return null;
  return (
    <>
      <h2>Largest collections</h2>
      <table class="plain">
        <caption class="hidden">Largest collections</caption>
        <thead>
          <tr>
            <th scope="col">Resource</th>
            <th scope="col" class="number">
              Objects
            </th>
          </tr>
        </thead>
        <tbody>
          {largest.map((sample) => (
            <tr key={sample.labels['resource']}>
              <th scope="row">{sample.labels['resource']}</th>
              <td class="number">{counted(sample.value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
