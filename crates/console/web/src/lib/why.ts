// The reason for which a pod does not run, in one line.

import type { ContainerStateTerminated, ContainerStatus } from '../api/kubernetes';
import { at, fields, text } from './objects';

interface Why {
  /** The word for the state. */
  word: string;
  /** What the server or the kubelet says of it. */
  message: string;
}

const list = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);

/** The conditions of an object by their types. */
export function conditionsOf(
  object: unknown,
): { type: string; status: string; reason: string; message: string; since: string }[] {
  return list(at(object, 'status', 'conditions')).map((one) => ({
    type: text(at(one, 'type')),
    status: text(at(one, 'status')),
    reason: text(at(one, 'reason')),
    message: text(at(one, 'message')),
    since: text(at(one, 'lastTransitionTime')),
  }));
}

export function containerStatuses(pod: unknown): unknown[] {
  const names = ['initContainerStatuses', 'containerStatuses', 'ephemeralContainerStatuses'];
  return names.flatMap((name) => list(at(pod, 'status', name)));
}

/** What a container waits for or ended with; null for one that runs well. */
export function whyContainer(status: unknown): Why | null {
  const its = fields<ContainerStatus>(status);
  const [waiting, ended, before] = [
    its('state', 'waiting'),
    its('state', 'terminated'),
    its('lastState', 'terminated'),
  ];
  const ending = (of: unknown) => {
    const end = fields<ContainerStateTerminated>(of);
    const code = text(end('exitCode'));
    const reason = text(end('reason')) || 'Ended';
    return `${reason}${code === '' ? '' : `, exit code ${code}`}`;
  };
  if (waiting !== undefined) {
    const message = text(at(waiting, 'message'));
    const last = before === undefined ? '' : ` Last time: ${ending(before)}. ${text(at(before, 'message'))}`;
    return { word: text(at(waiting, 'reason')) || 'Waiting', message: `${message}${last}`.trim() };
  }
  if (ended !== undefined && text(at(ended, 'exitCode')) !== '0') {
    return {
      word: text(at(ended, 'reason')) || 'Error',
      message: `${ending(ended)}. ${text(at(ended, 'message'))}`.trim(),
    };
  }
  return null;
}

/** Why a pod does not run; empty for one that runs or has ended well. */
export function whyPod(pod: unknown): string {
  const phase = text(at(pod, 'status', 'phase'));
  if (phase === 'Succeeded') return '';
  const own = [text(at(pod, 'status', 'reason')), text(at(pod, 'status', 'message'))].filter((one) => one !== '');
  if (own.length > 0) return own.join(': ');
  for (const status of containerStatuses(pod)) {
    const why = whyContainer(status);
    if (why === null || why.word === 'ContainerCreating' || why.word === 'PodInitializing') continue;
    return `${text(at(status, 'name'))}: ${[why.word, why.message].filter((one) => one !== '').join(', ')}`;
  }
  const conditions = conditionsOf(pod);
  const failed = conditions.find(
    ({ type, status, message }) => type === 'PodScheduled' && status === 'False' && message !== '',
  );
  if (failed !== undefined) return `${failed.reason || 'Unschedulable'}: ${failed.message}`;
  if (phase === 'Running') {
    const unready = conditions.find(({ type, status }) => type === 'Ready' && status === 'False');
    return unready === undefined ? '' : [unready.reason, unready.message].filter((one) => one !== '').join(': ');
  }
  const open = conditions.find(({ status, message }) => status === 'False' && message !== '');
  return open === undefined ? '' : `${open.reason}: ${open.message}`;
}

/** Whether the status of a row in the table of pods asks for a reason. */
export function asksWhy(status: string, ready: string): boolean {
  if (status === 'Completed' || status === 'Succeeded') return false;
  const ratio = /^(\d+)\/(\d+)$/.exec(ready);
  return status !== 'Running' || ratio?.[1] !== ratio?.[2];
}
