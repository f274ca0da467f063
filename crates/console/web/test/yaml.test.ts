import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { jsonText } from '../src/lib/json';
import { objectOf, yamlOf } from '../src/lib/text';

const read = async (text: string) => JSON.parse(jsonText(await objectOf(text))) as unknown;

/** The variable with the directory of the suites; `cargo xtask npm` prints it. */
const SUITES = process.env.KEELSON_TEST_NPM ?? '';

interface Case {
  id: string;
  yaml: string;
  json?: string;
  fail: boolean;
}

/** Cases without data in JSON in the suite, and one whose last line gets no line break, as in go-yaml. */
const OTHERWISE: Record<string, unknown> = {
  '4MUZ/1': { foo: 'bar' },
  '96NN/1': { foo: '\tbar' },
  'L24T/1': { foo: 'x\n ' },
};

test('the public suite has the data of the suite or is refused', { skip: SUITES === '' }, async () => {
  const cases = JSON.parse(readFileSync(`${SUITES}/suites/yaml.json`, 'utf8')) as Case[];
  let [equal, refused] = [0, 0];
  for (const one of cases) {
    let found: unknown;
    try {
      found = await read(one.yaml);
    } catch {
      refused += 1;
      continue;
    }
    equal += 1;
    assert.equal(one.fail, false, one.id);
    assert.deepEqual(found, OTHERWISE[one.id] ?? JSON.parse(one.json ?? 'null'), one.id);
  }
  assert.deepEqual([cases.length, equal, refused], [402, 113, 289]);
});

test('what the server refuses, or reads otherwise, is refused', async () => {
  const refused = {
    'a: 1\n<<: {b: 2}\n': /merge keys are not supported/,
    'a: &x {b: 1}\nc:\n  <<: *x\n': /merge keys are not supported/,
    '? [a]\n: b\n': /a key must be a scalar/,
    '{a: b}: c\n': /a key must be a scalar/,
    '~: a\n': /a key must not be null/,
    'a: !!binary eA==\n': /the tag !!binary is not supported/,
    'a: !!int x\n': /x is no !!int/,
    'a: !!bool 5x\n': /5x is no !!bool/,
    '{ ?a: b }\n': /the key \?a needs quotes/,
    '{a:, b: c}\n': /a space is needed after a:/,
    '3.14159: a\n': /the key 3.14159 needs quotes/,
    '.inf: a\n': /the key .inf needs quotes/,
    'a: b\rc: d\n': /a line break that is neither LF nor CRLF/,
    'a: "b\u2028c"\n': /a line break that is neither LF nor CRLF/,
    '- a\n': /this is not one object/,
    '1e3\n': /this is not one object/,
  };
  for (const [text, message] of Object.entries(refused)) await assert.rejects(read(text), message, text);
});

test('blocks end as they are written, and sets keep their keys', async () => {
  assert.deepEqual(await read('a: |\n  x'), { a: 'x' });
  assert.deepEqual(await read('a: |\n  x\n'), { a: 'x\n' });
  assert.deepEqual(await read('a: >\n  x\n  y'), { a: 'x y' });
  assert.deepEqual(await read('b: |-\n  x\na: |+\n  x\n\n'), { b: 'x', a: 'x\n\n' });
  assert.deepEqual(await read('--- !!set\n? a\n? b\n'), { a: null, b: null });
  assert.deepEqual(await read('a: b\r\nc: d\r\n'), { a: 'b', c: 'd' });
  assert.deepEqual(await read('a: &x {b: 1}\nc: *x\n'), { a: { b: 1 }, c: { b: 1 } });
  assert.equal(await yamlOf({ '<<': '<<' }), '"<<": "<<"\n');
});
