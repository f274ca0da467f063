// YAML as kubectl writes it. Loaded with the first object that is opened.

import { parse, stringify, type Tags } from 'yaml';
import type { JsonObject } from '../api/types';

export function toYaml(value: unknown): string {
  return stringify(value, { indentSeq: false, lineWidth: 0, aliasDuplicateObjects: false, version: '1.1' });
}

/** Times stay texts, and numbers have one base, as in what kubectl reads. */
function tags(all: Tags): Tags {
  return all.filter((tag) => typeof tag === 'string' || (!tag.tag.endsWith(':timestamp') && tag.format !== 'TIME'));
}

/** The object that the text is of; an error says what is wrong with the text. */
export function fromYaml(text: string): JsonObject {
  const value: unknown = parse(text, { version: '1.1', merge: false, customTags: tags });
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error('this is not one object');
  return value as JsonObject;
}
