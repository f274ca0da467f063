// A line of how many objects the list had at moments of the past, over the slider of time.

import { useEffect, useState } from 'preact/hooks';
import { type ListQuery, readCountAt } from '../../api/lists';
import { ago, counted } from '../../lib/time';

/** How many moments are counted. A selection is evaluated at each of them, so fewer are. */
const MOMENTS = 25;
const OF_SELECTION = 13;
const WIDTH = 240;
const HEIGHT = 28;

export interface Point {
  /** How long ago, in seconds. */
  seconds: number;
  count: number;
}

/** Counts of some moments, the earliest first. They appear as they are counted, the present first. */
function useCounts(query: ListQuery, reach: number, now: number): Point[] {
  const [points, setPoints] = useState<Point[]>([]);
  const { collection, namespaces, labels, fields, terms, where, search } = query;
  const key = JSON.stringify({ collection, namespaces, labels, fields, terms, where, search, reach, now });
  useEffect(() => {
    const abort = new AbortController();
    const isSelection = [labels, fields, where, search, ...terms].some((one) => one !== '');
    const steps = (isSelection ? OF_SELECTION : MOMENTS) - 1;
    setPoints([]);
    const read = async () => {
      for (let step = 0; step <= steps; step += 1) {
        // One second less than the reach, which grows smaller while this reads.
        const seconds = Math.round((Math.max(1, reach - 1) * step) / steps);
        const moment = new Date(now - seconds * 1000).toISOString();
        const count = await readCountAt(query, moment, abort.signal);
        if (abort.signal.aborted || count === undefined) return;
        setPoints((before) => [{ seconds, count }, ...before]);
      }
    };
    // A moment that is no longer kept has no count.
    read().catch(() => undefined);
    return () => abort.abort();
    // The query of a key is the same.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [key]);
  return points;
}

/** The points as a line in a box, with the scale from the smallest count to the largest. */
export function lineOf(points: Point[], reach: number): string {
  const counts = points.map((one) => one.count);
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  const x = (seconds: number) => WIDTH - (WIDTH * seconds) / Math.max(1, reach);
  const y = (count: number) =>
    most === least ? HEIGHT / 2 : HEIGHT - 3 - ((HEIGHT - 6) * (count - least)) / (most - least);
  return points.map(({ seconds, count }) => `${x(seconds).toFixed(1)},${y(count).toFixed(1)}`).join(' ');
}

export function Sparkline(props: { query: ListQuery; reach: number; now: number; seconds: number }) {
  const { reach, now, seconds } = props;
  const points = useCounts(props.query, reach, now);
  const [first] = points;
  const last = points.at(-1);
  if (first === undefined || last === undefined) return <span class="sparkline" />;
  const counts = points.map((one) => one.count);
  const text = `${counted(first.count)} ${ago(first.seconds * 1000)} ago, ${counted(last.count)} now, between ${counted(
    Math.min(...counts),
  )} and ${counted(Math.max(...counts))}`;
  const here = WIDTH - (WIDTH * Math.min(seconds, reach)) / Math.max(1, reach);
  return (
    <span class="sparkline" data-points={points.length}>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`Objects: ${text}`}>
        <title>{text}</title>
        <line x1={here} x2={here} y1="0" y2={HEIGHT} />
        <polyline points={lineOf(points, reach)} />
      </svg>
      <small>
        <b>{counted(Math.max(...counts))}</b>
        <span>{counted(Math.min(...counts))}</span>
      </small>
    </span>
  );
}
