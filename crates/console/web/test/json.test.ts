import assert from 'node:assert/strict';
import test from 'node:test';
import { copied, isSame, jsonText, NumberText, numberOf, readJson } from '../src/lib/json';
import { objectOf, yamlOf } from '../src/lib/text';
import type { Json } from '../src/api/types';
import scalars from '../../../codec/tests/scalars.json';

const NUMBERS = [
  '0',
  '7',
  '-7',
  '0.1',
  '1.0',
  '-0',
  '-0.0',
  '1e400',
  '1e21',
  '1E2',
  '9007199254740993',
  '3.14159265358979323846',
];
const TEXTS = ['', 'a"b\\', '9007199254740993', ': 1.0', '\u2028', '\u{1f600}', '{}', 'true', 'null'];

test('every number and every text comes out of JSON and YAML as it went in', async () => {
  const members = [...NUMBERS, ...TEXTS.map((text) => JSON.stringify(text)), 'true', 'false', 'null', '[]', '{}'];
  const text = `{"a":[${members.join(',')}],"b":{${members.map((one, at) => `"m${at}":${one}`).join(',')}}}`;
  const value = readJson(text);
  assert.equal(jsonText(value), text);
  assert.equal(jsonText(copied(value as Json)), text);
  assert.equal(jsonText(await objectOf(await yamlOf(value))), text);
});

test('only numbers that JavaScript writes otherwise are kept as texts', () => {
  const kept = NUMBERS.filter((text) => numberOf(text) instanceof NumberText);
  assert.deepEqual(kept, ['1.0', '-0', '-0.0', '1e400', '1e21', '1E2', '9007199254740993', '3.14159265358979323846']);
  for (const text of NUMBERS) assert.equal(jsonText(readJson(` ${text} `)), text);
});

test('spaces and nesting are read as the native reader reads them', () => {
  const text = ' { "a" : [ 1.5 , [ ] , { } , "x" , null ] , "b" : { "c" : true } , "d" : [ 2.50 ] }\n';
  assert.equal(jsonText(readJson(text)), '{"a":[1.5,[],{},"x",null],"b":{"c":true},"d":[2.50]}');
  for (const bad of ['', '{', '[1,]', '{"a":1.0,}', '01', '1.', 'nul']) assert.throws(() => readJson(bad));
});

test('numbers of YAML are those of JSON, or refused', async () => {
  const read = async (text: string) => jsonText(await objectOf(`a: ${text}\n`));
  assert.equal(await read('9007199254740993'), '{"a":9007199254740993}');
  assert.equal(await read('0x20000000000001'), '{"a":9007199254740993}');
  assert.equal(await read('1_000'), '{"a":1000}');
  assert.equal(await read('014'), '{"a":12}');
  assert.equal(await read('"1.0"'), '{"a":"1.0"}');
  for (const bad of ['.inf', '.nan', '-.inf']) await assert.rejects(() => read(bad), /is no number of JSON/);
  assert.equal(jsonText(await objectOf('1: a\n2.50: b\n')), '{"1":"a","2.5":"b"}');
});

test('a plain scalar of YAML is what it is for the server, and a text stays one', async () => {
  for (const [text, value] of scalars as [string, Json][]) {
    assert.deepEqual(JSON.parse(jsonText(await objectOf(`a: ${text}\n`))), { a: value }, text);
    for (const one of [{ a: text }, { [text]: 'a' }]) {
      const written = await yamlOf(one);
      if (typeof value !== 'string') assert.equal(written.includes('"'), true, text);
      assert.deepEqual(await objectOf(written), one, written);
    }
  }
});

test('characters that are none of YAML, or line breaks for others, are escaped', async () => {
  const escapes = {
    '\u0085': '\\N',
    '\u2028': '\\L',
    '\u2029': '\\P',
    '\x7f': '\\x7F',
    '\ufeff': '\\uFEFF',
    '\x01': '\\x01',
  };
  for (const [char, escape] of Object.entries(escapes)) {
    assert.equal(await yamlOf({ a: `x${char}"\\y` }), `a: "x${escape}\\"\\\\y"\n`);
    assert.deepEqual(await objectOf(`a: "x${escape}y"\n`), { a: `x${char}y` });
  }
  assert.equal(await yamlOf({ a: '\tx\ny\n' }), 'a: "\\tx\\ny\\n"\n');
  assert.equal(await yamlOf({ a: 'x\n\ty\n' }), 'a: |\n  x\n  \ty\n');
});

test('a key is a key, whatever objects inherit by its name', async () => {
  const text = '{"__proto__":{"method":"DELETE"},"constructor":1.0,"toString":"x","hasOwnProperty":{"a":1}}';
  for (const value of [readJson(text), copied(readJson(text) as Json), await objectOf(await yamlOf(readJson(text)))]) {
    assert.equal(jsonText(value), text);
    assert.equal((value as { method?: string }).method, undefined);
  }
  assert.equal(isSame(readJson('{"__proto__":1}') as Json, readJson('{}') as Json), false);
  assert.equal(isSame(readJson('{"toString":1,"a":2}') as Json, readJson('{"a":2,"toString":1}') as Json), true);
});
