// Objects as the user sees them, without the fields that the server keeps for itself.

import type { Json, JsonObject, KubeObject } from '../api/types';
import { isMap, jsonText } from './json';

/** Without managedFields, which have a page of their own. */
export function shown(object: KubeObject): KubeObject {
  const metadata = { ...object.metadata };
  delete metadata.managedFields;
  return { ...object, metadata };
}

/** Whether one resourceVersion is of a later state than another one. Those that are no numbers have no order: another one counts as later. */
export function isLater(one: string, than: string): boolean {
  const areNumbers = [one, than].every((text) => /^\d+$/.test(text));
  return areNumbers ? BigInt(one) > BigInt(than) : one !== than;
}

const MADE_BY_SERVER = ['managedFields', 'resourceVersion', 'uid', 'creationTimestamp', 'generation', 'selfLink'];

/** Reads fields of a kind. A name that the kind does not have is an error of the build. Values may be anything. */
export function fields<T>(value: unknown) {
  return <
    A extends keyof T & string,
    B extends keyof NonNullable<T[A]> & string = never,
    // It checks the last name.
    // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
    C extends keyof NonNullable<NonNullable<T[A]>[B]> & string = never,
  >(
    ...path: [A] | [A, B] | [A, B, C]
  ): unknown => at(value, ...path);
}

/** What of an object somebody may want to be so: what is applied. */
export function wanted(object: JsonObject): JsonObject {
  const made = { ...object };
  delete made['status'];
  const { metadata } = made;
  if (isMap(metadata)) {
    const kept = Object.entries(metadata).filter(([name]) => !MADE_BY_SERVER.includes(name));
    made['metadata'] = Object.fromEntries(kept);
  }
  return made;
}

export function at(object: unknown, ...steps: (string | number)[]): unknown {
  let value = object;
  for (const one of steps) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = Object.hasOwn(value, one) ? (value as Record<string | number, unknown>)[one] : undefined;
  }
  return value;
}

export function text(value: unknown): string {
  if (typeof value === 'string') return value;
  return value === undefined || value === null ? '' : jsonText(value);
}

export function asJson(object: KubeObject): Json {
  return object as unknown as Json;
}
