// YAML in the form that kubectl writes. It is loaded when the first object is opened.

import {
  type Document,
  isScalar,
  parseAllDocuments,
  parseDocument,
  type ScalarTag,
  stringify,
  type Tags,
  visit,
} from 'yaml';
import type { Json, JsonObject } from '../api/types';
import { needsQuotes, numberIn, quoted } from './scalar';

/** Numbers that keep their digits, which are those of `lib/json.ts`: this file is loaded without it. */
export interface Numbers {
  of: (text: string) => Json;
  textOf: (value: unknown) => string | undefined;
}

export function toYaml(value: unknown, numbers: Numbers): string {
  const tag: ScalarTag = {
    tag: 'tag:yaml.org,2002:float',
    default: true,
    identify: (one) => numbers.textOf(one) !== undefined,
    resolve: (text) => text,
    stringify: (node) => numbers.textOf(node.value) ?? '',
  };
  const text: ScalarTag = {
    tag: 'tag:yaml.org,2002:str',
    default: true,
    identify: (one) => typeof one === 'string' && (needsQuotes(one) || PLAIN.test(one)),
    resolve: (text) => text,
    stringify: (node) => quoted(String(node.value)),
  };
  return stringify(value, {
    indentSeq: false,
    lineWidth: 0,
    aliasDuplicateObjects: false,
    version: '1.1',
    customTags: (all) => [tag, text, ...all],
  });
}

/** A number as JSON writes it. */
const PLAIN = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/;

/** Numbers as kubectl reads them, and those of JSON that are too large for it. */
const NUMBER: ScalarTag = {
  tag: 'tag:yaml.org,2002:int',
  default: true,
  test: /^(?:[-+\d][\w.+-]*|\.\d[\d.eE+-]*)$/,
  resolve: (text) => numberIn(text) ?? (PLAIN.test(text) ? Number(text) : text),
};

/** Times stay texts, as in what kubectl reads, and so does the key that merges elsewhere. */
function tags(all: Tags): Tags {
  const others = all.filter((tag) => typeof tag === 'string' || !/:(?:int|float|timestamp|merge)$/.test(tag.tag));
  const words = all.filter(
    (tag) => typeof tag !== 'string' && /:float$/.test(tag.tag) && tag.test?.test('.inf') === true,
  );
  return [...others, ...words, NUMBER, { ...NUMBER, tag: 'tag:yaml.org,2002:float' }];
}

const OPTIONS = { version: '1.1', merge: false, intAsBigInt: true, customTags: tags } as const;

/** The value of a document; an error says what is wrong with it. */
function valueOf(document: Document.Parsed, numbers: Numbers): unknown {
  const [fault] = document.errors;
  if (fault !== undefined) throw fault;
  visit(document, {
    Scalar: (place, node) => {
      // Keys are always text, even if they look like numbers.
      if (place === 'key' || (typeof node.value !== 'number' && typeof node.value !== 'bigint')) return;
      const isPlain = isScalar(node) && node.source !== undefined && PLAIN.test(node.source);
      const written = isPlain ? (node.source ?? '') : String(node.value);
      if (!PLAIN.test(written)) throw new Error(`${node.source ?? written} is no number of JSON`);
      node.value = numbers.of(written);
    },
  });
  return document.toJS();
}

/** The object that the text is of; an error says what is wrong with the text. */
export function fromYaml(text: string, numbers: Numbers): JsonObject {
  const value = valueOf(parseDocument(text, OPTIONS), numbers);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error('this is not one object');
  return value as JsonObject;
}

/** The objects of all documents in a text. The items of lists are objects of their own. */
export function allFromYaml(text: string, numbers: Numbers): JsonObject[] {
  const documents = parseAllDocuments(text, OPTIONS);
  if (!Array.isArray(documents)) return [];
  return documents.flatMap((document, at): JsonObject[] => {
    const value = valueOf(document, numbers);
    if (value === null || value === undefined) return [];
    if (typeof value !== 'object' || Array.isArray(value)) throw new Error(`Document ${at + 1} is no object.`);
    const { kind, items } = value as { kind?: unknown; items?: unknown };
    return typeof kind === 'string' && kind.endsWith('List') && Array.isArray(items)
      ? (items as JsonObject[])
      : [value as JsonObject];
  });
}
