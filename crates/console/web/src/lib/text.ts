// Converts objects to YAML text and back. The first use loads the YAML library.

import type { JsonObject } from '../api/types';
import { numberOf, NumberText } from './json';

const NUMBERS = {
  of: numberOf,
  textOf: (value: unknown) => (value instanceof NumberText ? value.text : undefined),
};

export async function yamlOf(value: unknown): Promise<string> {
  const { toYaml } = await import('../yaml');
  return toYaml(value, NUMBERS);
}

/** The object that a text is of; an error says what is wrong with the text. */
export async function objectOf(text: string): Promise<JsonObject> {
  const { fromYaml } = await import('../yaml');
  return fromYaml(text, NUMBERS);
}

/** The objects of a text with one or several documents; lists are taken apart. */
export async function objectsOf(text: string): Promise<JsonObject[]> {
  const { allFromYaml } = await import('../yaml');
  return allFromYaml(text, NUMBERS);
}
