// Formats points in time for people.

const UNITS: [number, string][] = [
  [86_400, 'd'],
  [3_600, 'h'],
  [60, 'm'],
  [1, 's'],
];

/** How long ago, in one or two units: `5s`, `3m12s`, `4d`. */
export function ago(milliseconds: number): string {
  let seconds = Math.max(0, Math.round(milliseconds / 1000));
  const parts: string[] = [];
  for (const [size, unit] of UNITS) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count > 0) parts.push(`${count}${unit}`);
    if (parts.length === 2 || (parts.length === 1 && (unit === 'd' || count >= 10))) break;
  }
  return parts.join('') || '0s';
}

export function clock(milliseconds: number): string {
  return new Date(milliseconds).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
}

export function full(text: string): string {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? text : date.toLocaleString();
}

export function counted(number: number): string {
  return number.toLocaleString('en-US');
}
