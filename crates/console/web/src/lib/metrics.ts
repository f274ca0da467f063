// The text form of metrics (Prometheus 0.0.4), as numbers by name and labels.

import { own } from './own';

export interface Sample {
  labels: Record<string, string>;
  value: number;
}

export type Metrics = Map<string, Sample[]>;

export function readMetrics(text: string): Metrics {
  const found: Metrics = new Map();
  for (const line of text.split('\n')) {
    const match = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (match === null) continue;
    const [, name = '', labels = '', value = ''] = match;
    const read = [...labels.matchAll(/([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g)];
    const sample = {
      labels: Object.fromEntries(read.map((one) => [one[1] ?? '', one[2] ?? ''])),
      value: Number(value),
    };
    const family = found.get(name);
    if (family === undefined) found.set(name, [sample]);
    else family.push(sample);
  }
  return found;
}

export function sum(metrics: Metrics, name: string, labels: Record<string, string> = {}): number | undefined {
  const all = metrics.get(name);
  if (all === undefined) return undefined;
  const fits = (sample: Sample) => Object.entries(labels).every(([key, value]) => own(sample.labels, key) === value);
  return all.filter(fits).reduce((total, sample) => total + sample.value, 0);
}

export function bytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit] ?? ''}`;
}
