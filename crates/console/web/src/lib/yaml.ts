// YAML in the form that kubectl writes. It is loaded when the first object is opened.

import {
  type Document,
  isCollection,
  isMap,
  isScalar,
  type Pair,
  parseAllDocuments,
  parseDocument,
  type Scalar,
  stringify,
  type ScalarTag,
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
    // The tag of the merge key would write the text `<<` without quotes.
    customTags: (all) => [tag, text, ...all.filter((one) => typeof one === 'string' || !/:merge$/.test(one.tag))],
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

/** Times stay texts, as in what kubectl reads. Sets and ordered maps stay what they are written as. */
function tags(all: Tags): Tags {
  const changed = /:(?:int|float|timestamp|merge|binary|set|omap|pairs)$/;
  const others = all.filter((tag) => typeof tag === 'string' || !changed.test(tag.tag));
  const words = all.filter(
    (tag) => typeof tag !== 'string' && /:float$/.test(tag.tag) && tag.test?.test('.inf') === true,
  );
  return [...others, ...words, NUMBER, { ...NUMBER, tag: 'tag:yaml.org,2002:float' }];
}

const OPTIONS = { version: '1.1', merge: false, intAsBigInt: true, logLevel: 'error', customTags: tags } as const;

/** The documents of a text are checked with the whole text. */
function checkBreaks(text: string): void {
  if (OTHER_BREAK.test(text)) throw new Error('a line break that is neither LF nor CRLF must be escaped');
}

/** Checks a document of a text, and keeps the digits of its numbers. The error says what is wrong with it. */
function check(document: Document.Parsed, text: string, numbers: Numbers): void {
  const [fault] = document.errors;
  if (fault !== undefined) throw fault;
  visit(document, {
    Pair: (_, pair) => {
      checkKey(pair, text);
    },
    Scalar: (place, node) => {
      checkTag(node);
      endAsWritten(node, text);
      // Keys are always text, even if they look like numbers.
      if (place === 'key' || (typeof node.value !== 'number' && typeof node.value !== 'bigint')) return;
      const isPlain = node.source !== undefined && PLAIN.test(node.source);
      const written = isPlain ? (node.source ?? '') : String(node.value);
      if (!PLAIN.test(written)) throw new Error(`${node.source ?? written} is no number of JSON`);
      node.value = numbers.of(written);
    },
  });
}

/** The object that the text is of; an error says what is wrong with the text. */
export function fromYaml(text: string, numbers: Numbers): JsonObject {
  checkBreaks(text);
  const document = parseDocument(text, OPTIONS);
  check(document, text, numbers);
  return objectIn(document);
}

function objectIn(document: Document.Parsed): JsonObject {
  if (!isMap(document.contents)) throw new Error('this is not one object');
  return document.toJS() as JsonObject;
}

/** The objects of all documents in a text. The items of lists are objects of their own. */
export function allFromYaml(text: string, numbers: Numbers): JsonObject[] {
  checkBreaks(text);
  const documents = parseAllDocuments(text, OPTIONS);
  if (!Array.isArray(documents)) return [];
  return documents.flatMap((document, at): JsonObject[] => {
    check(document, text, numbers);
    if (document.contents === null || (isScalar(document.contents) && document.contents.value === null)) return [];
    if (!isMap(document.contents)) throw new Error(`Document ${at + 1} is no object.`);
    const value = document.toJS() as JsonObject;
    const { kind, items } = value;
    return typeof kind === 'string' && kind.endsWith('List') && Array.isArray(items)
      ? (items as JsonObject[])
      : [value];
  });
}

/** Breaks that separate lines in YAML 1.1 alone. */
const OTHER_BREAK = /\r(?!\n)|[\u0085\u2028\u2029]/;

/** Refuses values that are not what their tags say. */
function checkTag({ tag, value, source }: Scalar): void {
  if (tag === 'tag:yaml.org,2002:binary') throw new Error('the tag !!binary is not supported');
  const wanted = /^tag:yaml.org,2002:(null|bool|int|float|timestamp)$/.exec(tag ?? '')?.[1];
  if (wanted !== undefined && typeof value === 'string') throw new Error(`${source ?? value} is no !!${wanted}`);
}

/** Fractions that the server writes as JavaScript does when they are keys. */
const SHORT_FRACTION = /^-?\d{1,3}\.\d{1,3}$/;

/** Refuses keys that the server refuses, or that it reads as others. */
function checkKey({ key }: Pair, text: string): void {
  if (isCollection(key)) throw new Error('a key must be a scalar');
  if (!isScalar(key) || key.value === null) throw new Error('a key must not be null');
  if (key.type !== 'PLAIN') return;
  const source = key.source ?? '';
  if (source === '<<') throw new Error('merge keys are not supported');
  const end = key.range?.[1] ?? 0;
  // In YAML 1.1 this question mark is no part of the key, and this colon is one.
  const isFraction = typeof key.value === 'number' && !SHORT_FRACTION.test(source);
  if (source.startsWith('?') || isFraction) throw new Error(`the key ${source} needs quotes`);
  if (/^\s*:[,\]}]/.test(text.slice(end))) throw new Error(`a space is needed after ${source}:`);
}

/** Adds no line break to the last line of a text: a block there ends as it is written, as it does for the server. */
function endAsWritten(node: Scalar, text: string): void {
  const isBlock = node.type === 'BLOCK_LITERAL' || node.type === 'BLOCK_FOLDED';
  if (!isBlock || typeof node.value !== 'string' || /[\n\r]$/.test(text)) return;
  if ((node.range?.[1] ?? 0) >= text.length) node.value = node.value.replace(/\n$/, '');
}
