import assert from 'node:assert/strict';
import test from 'node:test';
import { copied, isSame, jsonText, NumberText, numberOf, readJson } from '../src/lib/json';
import { objectOf, yamlOf } from '../src/lib/text';
import type { Json } from '../src/api/types';

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

test('a key is a key, whatever objects inherit by its name', async () => {
  const text = '{"__proto__":{"method":"DELETE"},"constructor":1.0,"toString":"x","hasOwnProperty":{"a":1}}';
  for (const value of [readJson(text), copied(readJson(text) as Json), await objectOf(await yamlOf(readJson(text)))]) {
    assert.equal(jsonText(value), text);
    assert.equal((value as { method?: string }).method, undefined);
  }
  assert.equal(isSame(readJson('{"__proto__":1}') as Json, readJson('{}') as Json), false);
  assert.equal(isSame(readJson('{"toString":1,"a":2}') as Json, readJson('{"a":2,"toString":1}') as Json), true);
});
