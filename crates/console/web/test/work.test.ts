// Tests of logic without a browser: counts as alternatives, orders, labels, files, ages, related objects.

import assert from 'node:assert/strict';
import test from 'node:test';
import { jobOf, labelsIn } from '../src/lib/actions';
import { csvOf } from '../src/lib/files';
import { KEYMAP } from '../src/lib/keymap';
import { pluralOf, toneOf, toneOfRatio } from '../src/lib/kinds';
import { oneOf, toggled, valuesAt, writtenIn } from '../src/lib/paths';
import { referencesOf, selects, selectorText } from '../src/lib/references';
import { ago } from '../src/lib/time';
import { whyPod } from '../src/lib/why';
import { pathAt } from '../src/lib/yaml-path';

test('values of one path are alternatives', () => {
  const path = '.spec.nodeName';
  const one = toggled(path, undefined, 'a');
  assert.equal(one, ".spec.nodeName == 'a'");
  const two = toggled(path, one, "it's, b");
  assert.equal(two, ".spec.nodeName in ('a', 'it\\'s, b')");
  assert.deepEqual(writtenIn(path, two ?? ''), ["'a'", "'it\\'s, b'"]);
  const three = toggled(path, two, null);
  assert.equal(three, `${two ?? ''} or not exists(.spec.nodeName)`);
  assert.equal(toggled(path, toggled(path, three, 'a'), null), ".spec.nodeName == 'it\\'s, b'");
  assert.equal(toggled(path, one, 'a'), undefined);
  assert.equal(writtenIn(path, '.spec.nodeName >= 3'), null);
  assert.equal(writtenIn(path, ".spec.nodeName == 'a' and exists(.x)"), null);
  assert.equal(oneOf('.n', [1, true]), '.n in (1, true)');
  assert.equal(oneOf('.n', []), undefined);
});

test('values at paths are own ones', () => {
  const object = { a: [{ b: 1 }, { b: [2] }], 'x.y/z': 'q' };
  assert.deepEqual(valuesAt(object, '.a[*].b'), [1, [2]]);
  assert.deepEqual(valuesAt(object, ".a[1]['b'][0]"), [2]);
  assert.deepEqual(valuesAt(object, "['x.y/z']"), ['q']);
  assert.deepEqual(valuesAt(object, '.constructor.name'), []);
  assert.deepEqual(valuesAt(object, '.a..b'), []);
});

test('labels are set and removed', () => {
  assert.deepEqual({ ...labelsIn('tier=web, old- x/y=') }, { tier: 'web', old: null, 'x/y': '' });
  for (const wrong of ['', 'tier', 'a=b c', '=x', '__proto__=1', '__proto__-'])
    assert.equal(labelsIn(wrong), null, wrong);
});

test('a file of CSV holds no formula', () => {
  assert.equal(csvOf([['a', '=1+1', 'b,"c"', '-5', '@x']]), `a,'=1+1,"b,""c""",-5,'@x\r\n`);
});

test('no key is bound twice, and none hides the first of a pair', () => {
  for (const where of ['list', 'object'] as const) {
    const keys = [...Object.keys(KEYMAP.everywhere.keys), ...Object.keys(KEYMAP[where].keys)];
    assert.equal(new Set(keys).size, keys.length, where);
    assert.equal(keys.includes('g'), false);
  }
});

test('kinds have plurals, and words have tones', () => {
  for (const [kind, plural] of [
    ['Pod', 'Pods'],
    ['Ingress', 'Ingresses'],
    ['NetworkPolicy', 'NetworkPolicies'],
    ['Endpoints', 'Endpoints'],
    ['Gateway', 'Gateways'],
  ] as const) {
    assert.equal(pluralOf(kind), plural);
  }
  assert.equal(toneOf('Running'), 'good');
  assert.equal(toneOf('Init:0/2'), 'busy');
  assert.equal(toneOf('Init:CrashLoopBackOff'), 'bad');
  assert.equal(toneOf('NotReady,SchedulingDisabled'), 'bad');
  assert.equal(toneOf('whatever'), undefined);
  assert.deepEqual(['2/2', '1/2', '0/2', 'x'].map(toneOfRatio), [undefined, 'warn', 'bad', undefined]);
});

test('ages are those of kubectl', () => {
  const seconds: [number, string][] = [
    [0, '0s'],
    [119, '119s'],
    [125, '2m5s'],
    [600, '10m'],
    [10_800, '3h'],
    [11_000, '3h3m'],
    [172_800, '2d'],
    [90_000 * 10, '10d'],
    [86_400 * 800, '2y70d'],
  ];
  for (const [count, text] of seconds) assert.equal(ago(count * 1000), text);
});

test('a pod says why it does not run', () => {
  const container = { name: 'a', state: { waiting: { reason: 'ImagePullBackOff', message: 'not found' } } };
  assert.equal(
    whyPod({ status: { phase: 'Pending', containerStatuses: [container] } }),
    'a: ImagePullBackOff, not found',
  );
  const unplaced = { type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: 'no room' };
  assert.equal(whyPod({ status: { phase: 'Pending', conditions: [unplaced] } }), 'Unschedulable: no room');
  assert.equal(whyPod({ status: { phase: 'Succeeded', containerStatuses: [container] } }), '');
  assert.equal(
    whyPod({ status: { phase: 'Failed', reason: 'Evicted', message: 'low on memory' } }),
    'Evicted: low on memory',
  );
});

test('objects lead to those that they name', () => {
  const spec = {
    nodeName: 'n',
    volumes: [{ configMap: { name: 'a' } }, { secret: { secretName: 'b' } }],
    containers: [{ envFrom: [{ configMapRef: { name: 'a' } }] }],
  };
  const found = referencesOf('pods', { metadata: { namespace: 'x' }, spec });
  assert.deepEqual(
    found.map(({ plural, namespace, name }) => `${plural} ${namespace}/${name}`),
    ['configmaps x/a', 'secrets x/b', 'nodes /n'],
  );
  assert.equal(
    selectorText({ matchLabels: { a: 'b' }, matchExpressions: [{ key: 'c', operator: 'In', values: ['d', 'e'] }] }),
    'a=b,c in (d,e)',
  );
  assert.equal(selectorText({}), '');
  assert.equal(selects({ a: 'b' }, { a: 'b', c: 'd' }), true);
  assert.equal(selects({}, { a: 'b' }), false);
  assert.equal(selects({ constructor: 'b' }, {}), false);
});

test('a job of a cron job is owned by it', () => {
  const cron = {
    metadata: { name: 'c', uid: 'u' },
    spec: { jobTemplate: { metadata: { labels: { a: 'b' } }, spec: { x: 1 } } },
  };
  const job = jobOf(cron, 'j') as { metadata: { ownerReferences: { uid: string }[]; labels: unknown }; spec: unknown };
  assert.equal(job.metadata.ownerReferences[0]?.uid, 'u');
  assert.deepEqual([job.metadata.labels, job.spec], [{ a: 'b' }, { x: 1 }]);
});

test('a line of YAML has a path of keys', () => {
  const lines = [
    'spec:',
    '  template:',
    '    spec:',
    '      containers:',
    '      - name: a',
    '        image: b',
    '        po',
  ];
  assert.deepEqual(pathAt(lines, 6, 8), ['spec', 'template', 'spec', 'containers']);
  assert.deepEqual(pathAt(lines, 2, 4), ['spec', 'template']);
  assert.deepEqual(pathAt(lines, 0, 0), []);
});
