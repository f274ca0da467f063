import assert from 'node:assert/strict';
import test from 'node:test';
import { applied } from '../src/lib/apply';
import { stepsIn, valueAt, withValue } from '../src/lib/fieldpath';
import { shapeOf } from '../src/lib/shape';
import type { Json, JsonObject, KubeObject } from '../src/api/types';

const LIST = { 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['name'] };
const SHAPE = shapeOf(
  {},
  {
    properties: {
      spec: {
        properties: {
          containers: { ...LIST, items: { properties: { env: { ...LIST, items: {} } } } },
          selector: { 'x-kubernetes-map-type': 'atomic' },
        },
      },
    },
  },
);

function object(spec: JsonObject, owned: JsonObject = {}, labels: JsonObject = {}): KubeObject {
  const managedFields = [{ manager: 'console', operation: 'Apply', fieldsV1: owned }];
  const metadata = { name: 'x', namespace: 'n', uid: 'u', resourceVersion: '1', labels, managedFields };
  return { apiVersion: 'a/v1', kind: 'A', metadata, spec, status: { seen: true } } as unknown as KubeObject;
}

function check(before: KubeObject, after: KubeObject, expected: JsonObject, unsayable: string[] = []): void {
  const made = applied(before, after as unknown as JsonObject, before, 'console', SHAPE);
  const identity = { apiVersion: 'a/v1', kind: 'A' };
  const { metadata = {}, ...rest } = expected;
  const named = { ...(metadata as JsonObject), name: 'x', namespace: 'n' };
  assert.deepEqual(made.object, { ...identity, metadata: named, ...rest });
  assert.deepEqual(
    made.unsayable.map(({ path }) => path),
    unsayable,
  );
}

const container = (name: string, more: JsonObject = {}): JsonObject => ({ name, image: '1', ...more });

test('only what was changed is applied', () => {
  const before = object({ replicas: 2, containers: [container('a'), container('b')] });
  check(before, before, {});
  check(before, object({ replicas: 3, containers: [container('a'), container('b')] }), { spec: { replicas: 3 } });
  const image = object({ replicas: 2, containers: [container('a'), { name: 'b', image: '2' }] });
  check(before, image, { spec: { containers: [{ name: 'b', image: '2' }] } });
  const label = object({ replicas: 2, containers: [container('a'), container('b')] }, {}, { tier: 'x' });
  check(before, label, { metadata: { labels: { tier: 'x' } } });
});

test('what the console has applied before stays its own', () => {
  const owned = {
    'f:spec': { 'f:paused': {}, 'f:containers': { 'k:{"name":"b"}': { '.': {}, 'f:name': {}, 'f:image': {} } } },
  };
  const spec = { replicas: 2, paused: true, containers: [container('a'), container('b')] };
  const more = { ...spec, replicas: 3 };
  const kept = { paused: true, containers: [container('b')] };
  check(object(spec, owned), object(more), { spec: { replicas: 3, ...kept } });
});

test('a removal is applied of what was applied, and refused of anything else', () => {
  const owned = { 'f:spec': { 'f:paused': {} } };
  const spec = { replicas: 2, paused: true, containers: [container('a')] };
  check(object(spec, owned), object({ replicas: 2, containers: [container('a')] }), { spec: {} });
  const without = object({ paused: true, containers: [] });
  check(object(spec, owned), without, { spec: { paused: true } }, ['.spec.containers[name=a]', '.spec.replicas']);
  const two = { containers: [container('a'), container('b')] };
  check(object(two), object({ containers: [container('b'), container('a')] }), {}, ['.spec.containers']);
});

test('values that have no parts are applied as a whole, new ones with all their parts', () => {
  const before = object({ selector: { a: '1', b: '1' }, args: ['x'] });
  check(before, object({ selector: { a: '2', b: '1' }, args: ['x', 'y'] }), {
    spec: { selector: { a: '2', b: '1' }, args: ['x', 'y'] },
  });
  const added = { containers: [container('a', { env: [{ name: 'E', value: '1' }], resources: {} })] };
  check(object({}), object(added), { spec: added });
});

test('an owned map that is empty does not take the members of others', () => {
  const owned = { 'f:spec': { 'f:data': {} } };
  check(object({ data: { theirs: '1' } }, owned), object({ data: { theirs: '1' } }), { spec: { data: {} } });
});

test('paths of refusals are found by keys, in whatever order the items are', () => {
  const value = (names: string[]): Json => ({
    metadata: { labels: { 'app.kubernetes.io/name': 'x', app: 'y' } },
    spec: {
      containers: names.map((name) => ({ name, image: name, ports: [{ port: 1, protocol: 'TCP' }] })),
      set: ['a', 'b'],
    },
  });
  const path = '.spec.containers[name="b"].image';
  assert.deepEqual(stepsIn(value(['a', 'b']), path), ['spec', 'containers', 1, 'image']);
  assert.deepEqual(stepsIn(value(['b', 'a']), path), ['spec', 'containers', 0, 'image']);
  assert.equal(stepsIn(value(['a']), path), null);
  const label = stepsIn(value([]), '.metadata.labels.app.kubernetes.io/name');
  assert.deepEqual(label, ['metadata', 'labels', 'app.kubernetes.io/name']);
  assert.equal(valueAt(value([]), label ?? []), 'x');
  assert.deepEqual(stepsIn(value([]), '.metadata.labels.new.io/name'), ['metadata', 'labels', 'new.io/name']);
  const port = '.spec.containers[name="a"].ports[port=1,protocol="TCP"].name';
  assert.deepEqual(stepsIn(value(['a']), port), ['spec', 'containers', 0, 'ports', 0, 'name']);
  assert.deepEqual(stepsIn(value([]), '.spec.set[="b"]'), ['spec', 'set', 1]);
  assert.deepEqual(stepsIn(value([]), '.__proto__.method'), ['__proto__.method']);
});

test('a value is put at a place of the object alone', () => {
  const made = withValue({ a: { b: 1 } }, ['a', '__proto__'], { method: 'DELETE' });
  assert.equal(JSON.stringify(made), '{"a":{"b":1,"__proto__":{"method":"DELETE"}}}');
  assert.equal(({} as { method?: string }).method, undefined);
  assert.deepEqual(withValue({ a: [1, 2] }, ['a', 0], undefined), { a: [2] });
});
