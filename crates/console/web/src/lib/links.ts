// Addresses of pages about resources and objects. Only this module builds them.

import type { Resource } from '../api/discovery';
import { choices } from '../state/choices';
import { href } from '../state/router';

type Of = Pick<Resource, 'group' | 'version' | 'plural'>;

export function groupSegment(group: string): string {
  return group === '' ? 'core' : group;
}

export function groupOf(segment: string): string {
  return segment === 'core' ? '' : segment;
}

/** The list of a resource, in the chosen namespaces where it has namespaces. */
export function resourceHref(of: Of & { namespaced: boolean }, params: Record<string, string> = {}): string {
  const ns = of.namespaced ? choices.get().namespaces.join(',') : '';
  return href(['r', groupSegment(of.group), of.version, of.plural], { ns, ...params });
}

/** A list with all that is asked of it. */
export function listHref(of: Of, params: Record<string, string> = {}): string {
  return href(['r', groupSegment(of.group), of.version, of.plural], params);
}

export function objectHref(of: Of, namespace: string | undefined, name: string, params: Record<string, string> = {}) {
  const space = namespace === undefined || namespace === '' ? '-' : namespace;
  return href(['r', groupSegment(of.group), of.version, of.plural, space, name], params);
}
