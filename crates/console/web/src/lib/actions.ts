// Actions on objects as values: for which resources, what they send, and how kubectl would do the same.

import { at } from './objects';
import type { JsonObject } from '../api/types';

export interface Action {
  id: string;
  text: string;
  /** What is said when it is done: `web is restarted`. */
  done: string;
  /** The verb that the user needs. */
  verb: 'patch' | 'create';
  /** Whether it has a meaning for an object as it is. Unknown objects of a list count as fitting. */
  fits: (object: unknown) => boolean;
  /** A merge patch of the object. */
  patch: (now: Date) => JsonObject;
  kubectl: (name: string) => string;
  /** What is asked before. */
  asks?: string;
}

const is = (path: string[], value: unknown) => (object: unknown) => at(object, ...path) === value;
const isNot = (path: string[], value: unknown) => (object: unknown) => at(object, ...path) !== value;

function restart(kind: string): Action {
  return {
    id: 'restart',
    text: 'Restart',
    done: 'is restarted',
    verb: 'patch',
    fits: isNot(['spec', 'paused'], true),
    patch: (now) => ({
      spec: { template: { metadata: { annotations: { 'kubectl.kubernetes.io/restartedAt': now.toISOString() } } } },
    }),
    kubectl: (name) => `rollout restart ${kind}/${name}`,
    asks: 'All its pods are replaced, some at a time.',
  };
}

function flag(
  [id, text, done]: [string, string, string],
  [path, field]: [string[], string],
  value: boolean,
  kubectl: Action['kubectl'],
  asks?: string,
): Action {
  const whole = [...path, field];
  const patch = () =>
    path.reduceRight<JsonObject>((inner, step) => ({ [step]: inner }), { [field]: value ? true : null });
  const fits = value ? isNot(whole, true) : is(whole, true);
  return { id, text, done, verb: 'patch', fits, patch, kubectl, ...(asks === undefined ? {} : { asks }) };
}

const suspended = (kind: string): Action[] => [
  flag(['suspend', 'Suspend', 'is suspended'], [['spec'], 'suspend'], true, (name) =>
    patched(kind, name, '{"spec":{"suspend":true}}'),
  ),
  flag(['go-on', 'Resume', 'goes on'], [['spec'], 'suspend'], false, (name) =>
    patched(kind, name, '{"spec":{"suspend":false}}'),
  ),
];

function patched(kind: string, name: string, patch: string): string {
  return `patch ${kind}/${name} --type=merge -p '${patch}'`;
}

const ACTIONS: Record<string, Action[]> = {
  'deployments.apps': [
    restart('deployment'),
    flag(['pause', 'Pause', 'is paused'], [['spec'], 'paused'], true, (name) => `rollout pause deployment/${name}`),
    flag(['resume', 'Resume', 'goes on'], [['spec'], 'paused'], false, (name) => `rollout resume deployment/${name}`),
  ],
  'statefulsets.apps': [restart('statefulset')],
  'daemonsets.apps': [restart('daemonset')],
  'cronjobs.batch': suspended('cronjob'),
  'jobs.batch': suspended('job'),
  nodes: [
    flag(
      ['cordon', 'Cordon', 'is cordoned'],
      [['spec'], 'unschedulable'],
      true,
      (name) => `cordon ${name}`,
      'No new pod is placed there. Pods that run there stay.',
    ),
    flag(
      ['uncordon', 'Uncordon', 'takes pods again'],
      [['spec'], 'unschedulable'],
      false,
      (name) => `uncordon ${name}`,
    ),
  ],
};

/** The actions on objects of a resource, by its full name. */
export function actionsOf(resource: string): Action[] {
  return (Object.hasOwn(ACTIONS, resource) ? ACTIONS[resource] : undefined) ?? [];
}

/** Whether a cron job's work can be started at once. */
export function canTrigger(resource: string): boolean {
  return resource === 'cronjobs.batch';
}

/** The job that a cron job would make, as `kubectl create job --from` makes it. */
export function jobOf(cron: unknown, name: string): JsonObject {
  const template = at(cron, 'spec', 'jobTemplate');
  const meta = at(template, 'metadata') as JsonObject | undefined;
  const owner = {
    apiVersion: 'batch/v1',
    kind: 'CronJob',
    name: at(cron, 'metadata', 'name') as string,
    uid: at(cron, 'metadata', 'uid') as string,
    controller: true,
    blockOwnerDeletion: true,
  };
  const annotations = (meta?.['annotations'] ?? {}) as JsonObject;
  return {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: {
      name,
      labels: meta?.['labels'] ?? {},
      annotations: { ...annotations, 'cronjob.kubernetes.io/instantiate': 'manual' },
      ownerReferences: [owner],
    },
    spec: (at(template, 'spec') ?? {}) as JsonObject,
  };
}

/** Parses `a=b c- d=e`: labels to set, and to remove. Null where a part is neither. */
export function labelsIn(text: string): Record<string, string | null> | null {
  const found: Record<string, string | null> = {};
  for (const part of text.split(/[\s,]+/).filter((one) => one !== '')) {
    const set = /^([^=\s]+)=([^=\s]*)$/.exec(part);
    const gone = /^([^=\s]+)-$/.exec(part);
    if (set?.[1] !== undefined && set[1] !== '__proto__') found[set[1]] = set[2] ?? '';
    else if (gone?.[1] !== undefined && gone[1] !== '__proto__') found[gone[1]] = null;
    else return null;
  }
  return Object.keys(found).length === 0 ? null : found;
}
