// The line difference of two texts (Myers' greedy algorithm with a limit of steps).

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
