// Names and places of resources in the console: topics of the menu, and the tone of words for states.

import type { Resource } from '../api/discovery';
import { isBuiltIn } from './groups';

export type Topic = 'workloads' | 'network' | 'configuration' | 'storage' | 'access' | 'cluster' | 'custom';

export const TOPICS: [Topic, string][] = [
  ['workloads', 'Workloads'],
  ['network', 'Network'],
  ['configuration', 'Configuration'],
  ['storage', 'Storage'],
  ['access', 'Access'],
  ['cluster', 'Cluster'],
  ['custom', 'Custom'],
];

/** The resources of a topic in the order of the menu. */
const ORDER: Record<Exclude<Topic, 'custom'>, string[]> = {
  workloads: [
    'pods',
    'deployments.apps',
    'statefulsets.apps',
    'daemonsets.apps',
    'jobs.batch',
    'cronjobs.batch',
    'replicasets.apps',
    'replicationcontrollers',
    'horizontalpodautoscalers.autoscaling',
    'poddisruptionbudgets.policy',
    'podtemplates',
    'controllerrevisions.apps',
  ],
  network: [
    'services',
    'ingresses.networking.k8s.io',
    'networkpolicies.networking.k8s.io',
    'endpointslices.discovery.k8s.io',
    'endpoints',
    'ingressclasses.networking.k8s.io',
    'ipaddresses.networking.k8s.io',
    'servicecidrs.networking.k8s.io',
  ],
  configuration: [
    'configmaps',
    'secrets',
    'resourcequotas',
    'limitranges',
    'priorityclasses.scheduling.k8s.io',
    'runtimeclasses.node.k8s.io',
  ],
  storage: [
    'persistentvolumeclaims',
    'persistentvolumes',
    'storageclasses.storage.k8s.io',
    'volumeattachments.storage.k8s.io',
    'csidrivers.storage.k8s.io',
    'csinodes.storage.k8s.io',
    'csistoragecapacities.storage.k8s.io',
    'volumeattributesclasses.storage.k8s.io',
  ],
  access: [
    'serviceaccounts',
    'roles.rbac.authorization.k8s.io',
    'rolebindings.rbac.authorization.k8s.io',
    'clusterroles.rbac.authorization.k8s.io',
    'clusterrolebindings.rbac.authorization.k8s.io',
    'certificatesigningrequests.certificates.k8s.io',
  ],
  cluster: [
    'nodes',
    'namespaces',
    'events',
    'customresourcedefinitions.apiextensions.k8s.io',
    'apiservices.apiregistration.k8s.io',
  ],
};

const PLACES = new Map<string, [Topic, number]>(
  Object.entries(ORDER).flatMap(([topic, names]) =>
    names.map((name, at): [string, [Topic, number]] => [name, [topic as Topic, at]]),
  ),
);
/** Resources that another one of the menu shows as well. */
const DOUBLES = ['events.events.k8s.io'];

const nameOf = (one: Resource) => (one.group === '' ? one.plural : `${one.plural}.${one.group}`);

export function topicOf(one: Resource): Topic {
  return PLACES.get(nameOf(one))?.[0] ?? (isBuiltIn(one.group) ? 'cluster' : 'custom');
}

/** The resources of each topic, in the order of the menu. */
export function byTopic(resources: Resource[]): Map<Topic, Resource[]> {
  const found = new Map<Topic, Resource[]>(TOPICS.map(([topic]) => [topic, []]));
  for (const one of resources) if (!DOUBLES.includes(nameOf(one))) found.get(topicOf(one))?.push(one);
  const placeOf = (one: Resource) => PLACES.get(nameOf(one))?.[1] ?? ORDER.cluster.length;
  for (const members of found.values()) {
    members.sort((a, b) => placeOf(a) - placeOf(b) || a.group.localeCompare(b.group) || a.kind.localeCompare(b.kind));
  }
  return found;
}

/** The plural of a kind: `Pods`, `Ingresses`, `NetworkPolicies`. */
export function pluralOf(kind: string): string {
  if (/(s|x|ch|sh)$/.test(kind)) return /(ss|x|ch|sh)$/.test(kind) ? `${kind}es` : kind;
  return /[^aeiou]y$/.test(kind) ? `${kind.slice(0, -1)}ies` : `${kind}s`;
}

export type Tone = 'good' | 'warn' | 'bad' | 'busy' | 'idle';

const GOOD = [
  'running',
  'active',
  'bound',
  'ready',
  'available',
  'established',
  'healthy',
  'approved,issued',
  'normal',
];
const DONE = ['succeeded', 'completed', 'complete', 'available', 'suspended'];
const BUSY = ['pending', 'containercreating', 'podinitializing', 'terminating', 'waiting', 'progressing', 'released'];
const BAD = [
  'failed',
  'lost',
  'error',
  'oomkilled',
  'evicted',
  'notready',
  'nodelost',
  'unknown',
  'unhealthy',
  'denied',
];

/** The tone of a word for a state; a word that is not known has none. */
export function toneOf(word: string): Tone | undefined {
  const text = word.toLowerCase();
  if (GOOD.includes(text)) return 'good';
  if (DONE.includes(text)) return 'idle';
  if (text.startsWith('init:') && !/error|crash|oom|errimage|backoff/.test(text)) return 'busy';
  if (BUSY.includes(text)) return 'busy';
  if (text === 'warning' || text.startsWith('ready,schedulingdisabled')) return 'warn';
  if (text.startsWith('notready')) return 'bad';
  if (BAD.includes(text) || /backoff|^err|error|invalid|failed|crash|oom|deadline|unavailable|cannot/.test(text))
    return 'bad';
  return undefined;
}

/** The tone of `2/3`: not all are there. */
export function toneOfRatio(text: string): Tone | undefined {
  const match = /^(\d+)\/(\d+)$/.exec(text);
  if (match === null) return undefined;
  const [have, want] = [Number(match[1]), Number(match[2])];
  return have >= want ? undefined : have === 0 ? 'bad' : 'warn';
}
