// Paths through objects in the syntax of the server's queries, and query terms about their values.

import type { Json } from '../api/types';
import { isMap, NumberText } from './json';

/** A step that needs no quotes. */
const PLAIN = /^[A-Za-z_][A-Za-z0-9_-]*$/;

export function step(name: string): string {
  return PLAIN.test(name) ? `.${name}` : `['${name.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}']`;
}

export function pathOf(steps: string[]): string {
  return steps.map(step).join('');
}

/** A value as a term of a filter writes it; undefined where it has no form there. */
export function literal(value: Json | undefined): string | undefined {
  switch (typeof value) {
    case 'string':
      return `'${value.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
    case 'number':
    case 'boolean':
      return String(value);
    default:
      return value instanceof NumberText ? value.text : undefined;
  }
}

/** The term that holds for the objects of one value of a facet. */
export function equals(path: string, value: Json | undefined): string | undefined {
  if (value === undefined || value === null) return `not exists(${path})`;
  const text = literal(value);
  return text === undefined ? undefined : `${path} == ${text}`;
}

/** The term that holds for objects with one of some values; undefined where there are none, or one has no form. */
export function oneOf(path: string, values: (Json | undefined)[]): string | undefined {
  const isNone = (value: Json | undefined) => value === undefined || value === null;
  const texts = values.filter((value) => !isNone(value)).map(literal);
  if (texts.some((text) => text === undefined) || values.length === 0) return undefined;
  const none = values.some(isNone) ? [`not exists(${path})`] : [];
  const named =
    texts.length > 1 ? [`${path} in (${texts.join(', ')})`] : texts.map((text) => `${path} == ${text ?? ''}`);
  return [...named, ...none].join(' or ');
}

const LITERAL = /'(?:[^'\\]|\\.)*'|-?[0-9][^\s,)]*|true|false/y;

/** The values that a term of `oneOf` names, as they are written; null for another term. */
export function writtenIn(path: string, term: string): string[] | null {
  const none = `not exists(${path})`;
  if (term === none) return [none];
  const hasNone = term.endsWith(` or ${none}`);
  const rest = hasNone ? term.slice(0, -` or ${none}`.length) : term;
  const after = hasNone ? [none] : [];
  const one = `${path} == `;
  const all = `${path} in (`;
  const [open, close] = rest.startsWith(all) && rest.endsWith(')') ? [all, ')'] : [one, ''];
  if (!rest.startsWith(open)) return null;
  const list = rest.slice(open.length, rest.length - close.length);
  const found: string[] = [];
  for (LITERAL.lastIndex = 0; LITERAL.lastIndex < list.length;) {
    const match = LITERAL.exec(list);
    if (match === null) return null;
    found.push(match[0]);
    const end = LITERAL.lastIndex;
    if (end === list.length) break;
    if (!list.startsWith(', ', end)) return null;
    LITERAL.lastIndex = end + 2;
  }
  return [...found, ...after];
}

/** The term of a path after a click on one of its values: values of one path are alternatives. */
export function toggled(path: string, term: string | undefined, value: Json | undefined): string | undefined {
  const clicked = value === undefined || value === null ? `not exists(${path})` : literal(value);
  if (clicked === undefined) return term;
  const before = term === undefined ? [] : (writtenIn(path, term) ?? []);
  const after = before.includes(clicked) ? before.filter((one) => one !== clicked) : [...before, clicked];
  const none = after.filter((one) => one.startsWith('not exists('));
  const named = after.filter((one) => !one.startsWith('not exists('));
  const first = named.length > 1 ? [`${path} in (${named.join(', ')})`] : named.map((one) => `${path} == ${one}`);
  const made = [...first, ...none].join(' or ');
  return made === '' ? undefined : made;
}

/** The steps of a path; null for a text that is none. */
export function stepsOf(path: string): string[] | null {
  const found: string[] = [];
  const STEP = /\.([A-Za-z_][\w-]*)|\[(\d+|\*)\]|\['((?:[^'\\]|\\.)*)'\]/y;
  while (STEP.lastIndex < path.length) {
    const match = STEP.exec(path);
    if (match === null) return null;
    found.push(match[1] ?? match[2] ?? (match[3] ?? '').replaceAll(/\\(.)/g, '$1'));
  }
  return found;
}

/** All values at a path of an object; lists are stepped through by `[*]`. */
export function valuesAt(object: unknown, path: string): unknown[] {
  const steps = stepsOf(path.startsWith('.') || path.startsWith('[') ? path : `.${path}`);
  if (steps === null) return [];
  let values: unknown[] = [object];
  for (const one of steps) {
    values = values.flatMap((value): unknown[] => {
      if (Array.isArray(value)) return one === '*' ? (value as unknown[]) : [value[Number(one)]];
      if (!isMap(value)) return [];
      if (one === '*') return Object.values(value);
      return Object.hasOwn(value, one) ? [value[one]] : [];
    });
  }
  return values.filter((value) => value !== undefined && value !== null);
}

const MOST_PATHS = 400;

/** The paths that lead to plain values in some objects, the shortest first; lists are stepped through as a whole. */
export function pathsIn(objects: Json[]): string[] {
  const found = new Set<string>();
  const walk = (value: Json, path: string, depth: number) => {
    if (found.size >= MOST_PATHS || depth > 10 || value === null) return;
    if (Array.isArray(value)) value.slice(0, 3).forEach((item) => walk(item, `${path}[*]`, depth + 1));
    else if (isMap(value)) {
      for (const [name, member] of Object.entries(value)) {
        if (path === '.metadata' && name === 'managedFields') continue;
        walk(member, path + step(name), depth + 1);
      }
    } else if (path !== '') found.add(path);
  };
  objects.forEach((object) => walk(object, '', 0));
  return [...found].sort((a, b) => a.split(/[.[]/).length - b.split(/[.[]/).length || a.localeCompare(b));
}
