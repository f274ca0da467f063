// The containers of a pod, in the order in which they are offered.

import { at, text } from '../../lib/objects';

const list = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);

export function containersOf(pod: unknown): string[] {
  const names = (field: string) => list(at(pod, 'spec', field)).map((one) => text(at(one, 'name')));
  return [...names('containers'), ...names('initContainers'), ...names('ephemeralContainers')];
}

/** The container that commands mean if none is named. */
export function usualContainer(pod: unknown): string {
  const named = text(at(pod, 'metadata', 'annotations', 'kubectl.kubernetes.io/default-container'));
  const all = containersOf(pod);
  return all.includes(named) ? named : (all[0] ?? '');
}
