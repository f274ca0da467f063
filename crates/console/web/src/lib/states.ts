// The state of an object in one word with a tone, for the heads of pages.

import type { Tone } from './kinds';
import { at, text } from './objects';
import { conditionsOf, containerStatuses, whyContainer } from './why';

export interface State {
  word: string;
  tone?: Tone;
}

const number = (value: unknown) => (typeof value === 'number' ? value : 0);

function ofPod(pod: unknown): State {
  if (at(pod, 'metadata', 'deletionTimestamp') !== undefined) return { word: 'Terminating' };
  const reason = text(at(pod, 'status', 'reason'));
  if (reason !== '') return { word: reason };
  const phase = text(at(pod, 'status', 'phase'));
  if (phase !== 'Succeeded') {
    for (const status of containerStatuses(pod)) {
      const why = whyContainer(status);
      if (why !== null) return { word: why.word };
    }
  }
  const isReady = conditionsOf(pod).some(({ type, status }) => type === 'Ready' && status === 'True');
  return phase === 'Running' && !isReady ? { word: 'Running, not ready', tone: 'warn' } : { word: phase };
}

function ofReplicas(object: unknown, ready: string, wanted: number): State {
  const have = number(at(object, 'status', ready));
  if (at(object, 'spec', 'paused') === true) return { word: `Paused, ${have} of ${wanted} ready`, tone: 'warn' };
  if (wanted === 0) return { word: 'Scaled to 0', tone: 'idle' };
  if (have >= wanted) return { word: `${have} of ${wanted} ready`, tone: 'good' };
  return { word: `${have} of ${wanted} ready`, tone: have === 0 ? 'bad' : 'warn' };
}

function ofNode(node: unknown): State {
  const ready = conditionsOf(node).find(({ type }) => type === 'Ready');
  const cordoned = at(node, 'spec', 'unschedulable') === true;
  if (ready?.status !== 'True') return { word: cordoned ? 'Not ready, cordoned' : 'Not ready', tone: 'bad' };
  return cordoned ? { word: 'Ready, cordoned', tone: 'warn' } : { word: 'Ready', tone: 'good' };
}

function ofJob(job: unknown): State {
  const holds = conditionsOf(job).find(
    ({ status, type }) => status === 'True' && ['Complete', 'Failed', 'Suspended'].includes(type),
  );
  if (holds !== undefined) return { word: holds.type, tone: holds.type === 'Failed' ? 'bad' : 'idle' };
  return { word: `${number(at(job, 'status', 'active'))} running`, tone: 'busy' };
}

/** The state of an object by its conditions, as most kinds of definitions have them. */
function ofConditions(object: unknown): State {
  const conditions = conditionsOf(object);
  const main = conditions.find(({ type }) => ['Ready', 'Available', 'Established', 'Healthy', 'Synced'].includes(type));
  if (main !== undefined) {
    return main.status === 'True'
      ? { word: main.type, tone: 'good' }
      : { word: main.reason || `Not ${main.type.toLowerCase()}`, tone: 'bad' };
  }
  const phase = text(at(object, 'status', 'phase'));
  return { word: phase };
}

/** The state of an object; an empty word where its kind has none. */
export function stateOf(resource: string, object: unknown): State {
  if (resource !== 'pods' && at(object, 'metadata', 'deletionTimestamp') !== undefined)
    return { word: 'Being deleted', tone: 'busy' };
  const replicas = number(at(object, 'spec', 'replicas') ?? 1);
  switch (resource) {
    case 'pods':
      return ofPod(object);
    case 'deployments.apps':
    case 'statefulsets.apps':
    case 'replicasets.apps':
    case 'replicationcontrollers':
      return ofReplicas(object, 'readyReplicas', replicas);
    case 'daemonsets.apps':
      return ofReplicas(object, 'numberReady', number(at(object, 'status', 'desiredNumberScheduled')));
    case 'nodes':
      return ofNode(object);
    case 'jobs.batch':
      return ofJob(object);
    case 'cronjobs.batch':
      return at(object, 'spec', 'suspend') === true
        ? { word: 'Suspended', tone: 'warn' }
        : { word: 'Active', tone: 'good' };
    case 'events':
      return { word: text(at(object, 'type')) };
    default:
      return ofConditions(object);
  }
}
