// The difference of two texts by lines (Myers' greedy algorithm, bounded), and of two objects by paths.

import type { Json } from '../api/types';
import { step } from './paths';

export interface DiffLine {
  kind: 'same' | 'gone' | 'new';
  text: string;
}

/** Texts that differ in more lines are shown as one replaced by the other. */
const MOST_EDITS = 1500;

export function diffLines(before: string[], after: string[]): DiffLine[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let ends = 0;
  while (
    ends < before.length - start &&
    ends < after.length - start &&
    before[before.length - 1 - ends] === after[after.length - 1 - ends]
  ) {
    ends += 1;
  }
  const same = (texts: string[]) => texts.map((text): DiffLine => ({ kind: 'same', text }));
  const middle = shortest(before.slice(start, before.length - ends), after.slice(start, after.length - ends));
  return [...same(before.slice(0, start)), ...middle, ...same(before.slice(before.length - ends))];
}

function shortest(a: string[], b: string[]): DiffLine[] {
  const most = Math.min(a.length + b.length, MOST_EDITS);
  const reached: Map<number, number>[] = [];
  let furthest = new Map<number, number>([[1, 0]]);
  for (let edits = 0; edits <= most; edits += 1) {
    reached.push(new Map(furthest));
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
      let x = down ? (furthest.get(k + 1) ?? 0) : (furthest.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x += 1;
        y += 1;
      }
      furthest.set(k, x);
      if (x >= a.length && y >= b.length) return traced(a, b, reached);
    }
    furthest = new Map(furthest);
  }
  return [
    ...a.map((text): DiffLine => ({ kind: 'gone', text })),
    ...b.map((text): DiffLine => ({ kind: 'new', text })),
  ];
}

function traced(a: string[], b: string[], reached: Map<number, number>[]): DiffLine[] {
  const found: DiffLine[] = [];
  let x = a.length;
  let y = b.length;
  for (let edits = reached.length - 1; edits >= 0; edits -= 1) {
    const furthest = reached[edits] ?? new Map<number, number>();
    const k = x - y;
    const down = k === -edits || (k !== edits && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
    const fromK = down ? k + 1 : k - 1;
    const fromX = furthest.get(fromK) ?? 0;
    const fromY = fromX - fromK;
    while (x > fromX && y > fromY && x > 0 && y > 0) {
      found.push({ kind: 'same', text: a[x - 1] ?? '' });
      x -= 1;
      y -= 1;
    }
    if (edits > 0) {
      if (down) found.push({ kind: 'new', text: b[y - 1] ?? '' });
      else found.push({ kind: 'gone', text: a[x - 1] ?? '' });
      x = fromX;
      y = fromY;
    }
  }
  return found.reverse();
}

/** A difference with so many lines around each change; `null` stands for what is left out. */
export function hunks(all: DiffLine[], around: number): (DiffLine | null)[] {
  const near = all.map((_, at) => all.slice(Math.max(0, at - around), at + around + 1).some((l) => l.kind !== 'same'));
  const shown: (DiffLine | null)[] = [];
  all.forEach((line, at) => {
    if (near[at] === true) shown.push(line);
    else if (shown.at(-1) !== null) shown.push(null);
  });
  return shown;
}

export interface FieldChange {
  path: string;
  before: Json | undefined;
  after: Json | undefined;
}

/** The fields in which two values differ. Lists are compared item by item. */
export function changedFields(before: Json | undefined, after: Json | undefined, path = ''): FieldChange[] {
  if (isMap(before) && isMap(after)) {
    const names = new Set([...Object.keys(before), ...Object.keys(after)]);
    return [...names].flatMap((name) => changedFields(before[name], after[name], path + step(name)));
  }
  if (Array.isArray(before) && Array.isArray(after) && before.length === after.length) {
    return before.flatMap((item, at) => changedFields(item, after[at], `${path}[${at}]`));
  }
  return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ path, before, after }];
}

/** What nobody edits differs between any two writes. */
const NOISE = /^\.metadata\.(resourceVersion|generation|managedFields)/;

/** The fields that somebody has changed. */
export function editedFields(before: Json, after: Json): FieldChange[] {
  return changedFields(before, after).filter((change) => !NOISE.test(change.path));
}

function isMap(value: Json | undefined): value is { [key: string]: Json } {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The object with these changes made to it. Places of lists that are not there are left out. */
export function withChanges(object: Json, changes: FieldChange[]): Json {
  const made = structuredClone(object);
  for (const change of changes) setAt(made, stepsOf(change.path), change.after);
  return made;
}

export function stepsOf(path: string): (string | number)[] {
  const steps: (string | number)[] = [];
  for (const match of path.matchAll(/\.([A-Za-z_][\w-]*)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]/g)) {
    if (match[1] !== undefined) steps.push(match[1]);
    else if (match[2] !== undefined) steps.push(Number(match[2]));
    else steps.push((match[3] ?? '').replaceAll(/\\(.)/g, '$1'));
  }
  return steps;
}

function setAt(object: Json, steps: (string | number)[], value: Json | undefined): void {
  let at: Json = object;
  steps.forEach((name, index) => {
    const isLast = index === steps.length - 1;
    if (Array.isArray(at) && typeof name === 'number') {
      if (isLast && value !== undefined) at[name] = value;
      else at = at[name] ?? null;
    } else if (isMap(at) && typeof name === 'string') {
      if (!isLast) at = at[name] ??= {};
      else if (value === undefined) Reflect.deleteProperty(at, name);
      else at[name] = value;
    }
  });
}
