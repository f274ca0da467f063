// Formats points in time for people.

const [MINUTE, HOUR, DAY] = [60, 3600, 86_400];
const YEAR = 365 * DAY;

function units(large: number, unit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large}${unit}` : `${large}${unit}${small}${smallUnit}`;
}

/** How long ago, as kubectl writes it: `5s`, `3m12s`, `4d`. */
export function ago(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const whole = (of: number) => Math.floor(seconds / of);
  if (seconds < 2 * MINUTE) return `${seconds}s`;
  if (seconds < 10 * MINUTE) return units(whole(MINUTE), 'm', seconds % MINUTE, 's');
  if (seconds < 3 * HOUR) return `${whole(MINUTE)}m`;
  if (seconds < 8 * HOUR) return units(whole(HOUR), 'h', Math.floor((seconds % HOUR) / MINUTE), 'm');
  if (seconds < 2 * DAY) return `${whole(HOUR)}h`;
  if (seconds < 8 * DAY) return units(whole(DAY), 'd', Math.floor((seconds % DAY) / HOUR), 'h');
  if (seconds < 2 * YEAR) return `${whole(DAY)}d`;
  if (seconds < 8 * YEAR) return units(whole(YEAR), 'y', Math.floor((seconds % YEAR) / DAY), 'd');
  return `${whole(YEAR)}y`;
}

export function clock(milliseconds: number): string {
  return new Date(milliseconds).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
}

export function full(text: string): string {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? text : date.toLocaleString([], { dateStyle: 'medium', timeStyle: 'long' });
}

export function counted(number: number): string {
  return number.toLocaleString('en-US');
}
