// Uses types that openapi-typescript made from the documents of the server: one of core/v1, one of a custom group.

import createClient from 'openapi-fetch';
import type { components, paths } from './core.js';
import type { components as Promised, paths as PromisedPaths } from './promised.js';

type ConfigMap = components['schemas']['io.k8s.api.core.v1.ConfigMap'];
type Pod = components['schemas']['io.k8s.api.core.v1.Pod'];
type Promise1 = Promised['schemas']['org.example.promised.v1.Promise'];

declare const process: { env: Record<string, string | undefined> };

const settings = {
  baseUrl: process.env.CLIENT_URL,
  headers: { authorization: `Bearer ${process.env.CLIENT_TOKEN}` },
};
const core = createClient<paths>(settings);
const custom = createClient<PromisedPaths>(settings);

function equal(found: unknown, expected: unknown): void {
  const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
  if (one !== other) throw new Error(`${one} is not ${other}`);
}

const namespace = 'default';
const one = { params: { path: { namespace, name: 'typescript' } } } as const;
const all = { params: { path: { namespace } } } as const;
const MAPS = '/api/v1/namespaces/{namespace}/configmaps';
const MAP = '/api/v1/namespaces/{namespace}/configmaps/{name}';
const PROMISES = '/apis/promised.example.org/v1/namespaces/{namespace}/promises';

const body: ConfigMap = { metadata: { name: 'typescript' }, data: { a: '1' } };
const made = await core.POST(MAPS, { ...all, body });
equal([made.response.status, made.data?.data], [201, { a: '1' }]);
const changed: ConfigMap = { ...made.data, data: { a: '2' } };
const replaced = await core.PUT(MAP, { ...one, body: changed });
equal([replaced.response.status, replaced.data?.data?.a], [200, '2']);
const patched = await core.PATCH(MAP, {
  ...one,
  body: { data: { c: '3' } },
  headers: { 'content-type': 'application/merge-patch+json' },
});
equal([patched.response.status, patched.data?.data], [200, { a: '2', c: '3' }]);
const selected = { path: { namespace }, query: { fieldSelector: 'metadata.name=typescript', limit: 1 } };
const listed = await core.GET(MAPS, { params: selected });
equal(
  listed.data?.items.map((item) => item.metadata?.name),
  ['typescript'],
);
equal((await core.DELETE(MAP, one)).data?.status, 'Success');
equal((await core.GET(MAP, one)).response.status, 404);

const pod: Pod = {
  metadata: { name: 'typescript' },
  spec: {
    containers: [
      {
        name: 'a',
        image: 'a:1',
        resources: { requests: { cpu: '100m' } },
        readinessProbe: { httpGet: { port: 80 } },
      },
    ],
  },
};
const started = await core.POST('/api/v1/namespaces/{namespace}/pods', { ...all, body: pod });
equal([started.response.status, started.data?.status?.qosClass], [201, 'Burstable']);
equal(started.data?.spec?.containers[0]?.readinessProbe?.httpGet?.port, 80);

const promise: Promise1 = {
  apiVersion: 'promised.example.org/v1',
  kind: 'Promise',
  metadata: { name: 'typescript' },
  spec: { label: 'two', port: 'web' },
};
const kept = await custom.POST(PROMISES, { ...all, body: promise });
equal([kept.response.status, kept.data?.spec.size, kept.data?.spec.port], [201, 1, 'web']);
equal((await custom.DELETE(`${PROMISES}/{name}`, one)).response.status, 200);
console.log('passed');
