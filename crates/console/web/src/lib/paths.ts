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
