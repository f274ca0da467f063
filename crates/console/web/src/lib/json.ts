// JSON whose numbers keep their digits.
//
// JavaScript has one number type. It rounds integers above 2^53 and loses the notation of `1.0`, `-0` and `1e400`. Such
// numbers are kept as text; all others are plain numbers.

import type { Json, JsonObject } from '../api/types';
import { setOwn } from './own';

/** A number that JavaScript would write in another way. */
export class NumberText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toString(): string {
    return this.text;
  }

  valueOf(): number {
    return Number(this.text);
  }
}

export function isMap(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof NumberText);
}

/** The value of a number's text. */
export function numberOf(text: string): number | NumberText {
  const number = Number(text);
  return String(number) === text ? number : new NumberText(text);
}

/** Where a number may stand that is not kept by JavaScript: many digits, a fraction, an exponent, a negative zero. */
const UNUSUAL = /(?:^|[:[,\s])(?:-0|-?(?:\d{16}|\d+[.eE]))/;

/** Reads a text of JSON; throws a SyntaxError where it is none. */
export function readJson(text: string): unknown {
  // The native parser is many times faster and has the best error messages.
  const value: unknown = JSON.parse(text);
  return UNUSUAL.test(text) ? new Reader(text).read() : value;
}

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/y;
const TEXT = /"(?:[^"\\]|\\.)*"/y;
const WORDS: [string, Json][] = [
  ['true', true],
  ['false', false],
  ['null', null],
];

/** Reads a text that is known to be JSON. */
class Reader {
  private at = 0;

  constructor(private readonly text: string) {}

  read(): Json {
    const first = this.next();
    if (first === '{') return this.map();
    if (first === '[') return this.list();
    if (first === '"') return this.string();
    for (const [word, value] of WORDS) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return numberOf(this.match(NUMBER));
  }

  private map(): JsonObject {
    const made: JsonObject = {};
    for (this.at += 1; this.next() !== '}'; this.skip(',')) {
      const name = this.string();
      this.skip(':');
      setOwn(made, name, this.read());
    }
    this.at += 1;
    return made;
  }

  private list(): Json[] {
    const made: Json[] = [];
    for (this.at += 1; this.next() !== ']'; this.skip(',')) made.push(this.read());
    this.at += 1;
    return made;
  }

  private string(): string {
    return JSON.parse(this.match(TEXT)) as string;
  }

  private skip(mark: string): void {
    if (this.next() === mark) this.at += 1;
  }

  private next(): string {
    this.match(SPACE);
    return this.text.charAt(this.at);
  }

  private match(pattern: RegExp): string {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0] ?? '';
    this.at += found.length;
    return found;
  }
}

/** The text of a value, with its numbers as they were read. What is undefined is left out. */
export function jsonText(value: unknown): string {
  if (value instanceof NumberText) return value.text;
  if (Array.isArray(value)) return `[${value.map((item) => jsonText(item ?? null)).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${jsonText(member)}`).join(',')}}`;
  }
  if (typeof value === 'number' && !Number.isFinite(value)) throw new Error(`${value} is no number of JSON`);
  return value === undefined ? 'null' : JSON.stringify(value);
}

/** Whether two values say the same, whatever the order of their keys. */
export function isSame(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (a instanceof NumberText || b instanceof NumberText) {
    return a instanceof NumberText && b instanceof NumberText && a.text === b.text;
  }
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((item, at) => isSame(item, b[at]));
  if (!isMap(a) || !isMap(b)) return false;
  const names = Object.keys(a);
  return (
    names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && isSame(a[name], b[name]))
  );
}

/** A copy that shares no map and no list. */
export function copied(value: Json): Json {
  if (Array.isArray(value)) return value.map(copied);
  if (!isMap(value)) return value;
  const made: JsonObject = {};
  for (const [name, member] of Object.entries(value)) setOwn(made, name, copied(member));
  return made;
}
