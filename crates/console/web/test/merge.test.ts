import assert from 'node:assert/strict';
import test from 'node:test';
import { type Merged, merge } from '../src/lib/merge';
import { shapeOf, UNKNOWN } from '../src/lib/shape';
import type { Json, JsonObject } from '../src/api/types';

const CONTAINER = {
  properties: {
    ports: {
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['port', 'protocol'],
      items: { properties: { protocol: { default: 'TCP' } } },
    },
  },
};
const SCHEMAS: JsonObject = {
  Container: CONTAINER,
  Spec: {
    properties: {
      containers: {
        'x-kubernetes-list-type': 'map',
        'x-kubernetes-list-map-keys': ['name'],
        items: { allOf: [{ $ref: '#/components/schemas/Container' }], default: {} },
      },
      finalizers: { 'x-kubernetes-list-type': 'set', items: { type: 'string' } },
    },
  },
};
const SHAPE = shapeOf({ ...SCHEMAS }, { properties: { spec: { $ref: '#/components/schemas/Spec' } } });

const container = (name: string, image: string, more: JsonObject = {}): JsonObject => ({ name, image, ...more });
const of = (...containers: Json[]): Json => ({ spec: { containers } });

function check(merged: Merged, value: Json, kept: string[] = [], unplaced: string[] = []): void {
  assert.deepEqual(merged.value, value);
  assert.deepEqual(merged.kept, kept);
  assert.deepEqual(
    merged.unplaced.map(({ path }) => path),
    unplaced,
  );
}

test('an edit stays with its container when another one is put before it', () => {
  const base = of(container('a', '1'), container('b', '1'));
  const mine = of(container('a', '1'), container('b', '2'));
  const theirs = of(container('sidecar', '1'), container('a', '1'), container('b', '1'));
  check(merge(base, mine, theirs, SHAPE), of(container('sidecar', '1'), container('a', '1'), container('b', '2')));
});

test('an edit of a container that is gone is named, and left out', () => {
  const base = of(container('a', '1'), container('b', '1'));
  const mine = of(container('a', '2'), container('b', '1'));
  const merged = merge(base, mine, of(container('b', '1')), SHAPE);
  check(merged, of(container('b', '1')), [], ['.spec.containers[name=a]']);
});

test('what both have changed is named, and one keeps his own', () => {
  const base = of(container('a', '1'));
  const merged = merge(base, of(container('a', '2')), of(container('a', '3')), SHAPE);
  check(merged, of(container('a', '2')), ['.spec.containers[name=a].image']);
  assert.deepEqual(merged.theirs, [
    {
      path: '.spec.containers[name=a].image',
      place: '.spec.containers[0].image',
      theirs: '3',
      mine: '2',
      both: true,
    },
  ]);
});

test('lists that both have changed are refused where items have no keys', () => {
  const args = (...all: string[]): Json => ({ args: all });
  check(merge(args('a'), args('a', 'mine'), args('theirs'), UNKNOWN), args('theirs'), [], ['.args']);
  check(merge(args('a'), args('a'), args('theirs'), UNKNOWN), args('theirs'));
  check(merge(args('a'), args('mine'), args('a'), UNKNOWN), args('mine'));
  const twice = of(container('a', '1'), container('a', '2'));
  check(merge(twice, of(container('a', '9')), of(), SHAPE), of(), [], ['.spec.containers']);
});

test('items come and go on both sides', () => {
  const base = of(container('a', '1'), container('b', '1'), container('c', '1'));
  const mine = of(container('a', '1'), container('mine', '1'), container('b', '1'));
  const theirs = of(container('theirs', '1'), container('a', '1'), container('b', '2'), container('c', '1'));
  const expected = of(container('theirs', '1'), container('a', '1'), container('mine', '1'), container('b', '2'));
  check(merge(base, mine, theirs, SHAPE), expected);
  const both = (...all: string[]): Json => ({ spec: { finalizers: all } });
  check(merge(both('a', 'b'), both('a', 'b', 'mine'), both('b', 'theirs'), SHAPE), both('b', 'mine', 'theirs'));
});

test('a new order stays, unless both have made one', () => {
  const all = (names: string): Json => of(...names.split('').map((name) => container(name, '1')));
  check(merge(all('abc'), all('cba'), all('abcd'), SHAPE), all('cdba'));
  check(merge(all('abc'), all('abcd'), all('cab'), SHAPE), all('cdab'));
  check(merge(all('abc'), all('cba'), all('bac'), SHAPE), all('bac'), [], ['.spec.containers']);
});

test('keys that are left out have their usual value', () => {
  const ports = (...all: JsonObject[]): Json => of(container('a', '1', { ports: all }));
  const base = ports({ port: 1, protocol: 'TCP' }, { port: 1, protocol: 'UDP' });
  const mine = ports({ port: 1, name: 'mine' }, { port: 1, protocol: 'UDP' });
  const theirs = ports({ port: 1, protocol: 'UDP', name: 'theirs' }, { port: 1, protocol: 'TCP' });
  const merged = merge(base, mine, theirs, SHAPE);
  const expected = ports({ port: 1, protocol: 'UDP', name: 'theirs' }, { port: 1, name: 'mine' });
  check(merged, expected);
});

test('names that objects inherit are members like any other', () => {
  const data = (more: string): Json => JSON.parse(`{"spec":{"a":1${more}}}`) as Json;
  const merged = merge(data(''), data(',"__proto__":{"method":"DELETE"}'), data(',"toString":"x"'), UNKNOWN);
  assert.equal(JSON.stringify(merged.value), '{"spec":{"a":1,"toString":"x","__proto__":{"method":"DELETE"}}}');
  assert.equal(({} as { method?: string }).method, undefined);
});

test('what the server writes by itself is that of the newest state', () => {
  const meta = (resourceVersion: string, label: string): Json => ({ metadata: { resourceVersion, labels: { label } } });
  const merged = merge(meta('1', 'a'), meta('1', 'mine'), meta('2', 'a'), UNKNOWN);
  assert.deepEqual(merged, { value: meta('2', 'mine'), theirs: [], kept: [], unplaced: [] });
});
