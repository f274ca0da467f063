// The query of a list page, parsed from its URL.

import type { ListQuery } from '../../api/lists';
import type { Place } from '../../state/router';

export const PAGE_SIZES = [20, 50, 100, 200, 500];
const USUAL_SIZE = 50;

export function groupSegment(group: string): string {
  return group === '' ? 'core' : group;
}

export function groupOf(segment: string): string {
  return segment === 'core' ? '' : segment;
}

function whole(text: string | null, usual: number, most: number): number {
  const number = Number(text ?? usual);
  return Number.isInteger(number) && number >= 1 ? Math.min(number, most) : usual;
}

export function queryOf(place: Place): ListQuery {
  const [, group = '', version = '', plural = ''] = place.path;
  const { params, state } = place;
  const revision = params.get('rv') ?? '';
  return {
    collection: { group: groupOf(group), version, plural },
    namespace: params.get('ns') ?? '',
    labels: params.get('labels') ?? '',
    fields: params.get('fields') ?? '',
    terms: params.getAll('f'),
    where: params.get('where') ?? '',
    search: params.get('q') ?? '',
    sort: params.get('sort') ?? '',
    limit: whole(params.get('limit'), USUAL_SIZE, 500),
    page: whole(params.get('page'), 1, 1_000_000_000),
    revision: revision === '' ? (state.snapshot?.revision ?? '') : revision,
    at: params.get('at') ?? '',
    token: state.token ?? '',
  };
}

/** Whether the page is of the past by the user's wish, and so does not follow what is written. */
export function isPast(place: Place): boolean {
  return place.params.has('rv') || place.params.has('at');
}

export interface SortKey {
  path: string;
  type: string;
  descending: boolean;
}

/** The keys of an order, `-.spec.replicas:number` and the like. */
export function sortKeys(text: string): SortKey[] {
  return text
    .split(',')
    .filter((part) => part !== '')
    .map((part) => {
      const descending = part.startsWith('-');
      const rest = descending ? part.slice(1) : part;
      const match = /^(.*?)(?::(string|number|quantity|time|version))?$/.exec(rest);
      return { path: match?.[1] ?? rest, type: match?.[2] ?? '', descending };
    });
}

export function sortText(keys: SortKey[]): string {
  return keys.map((key) => `${key.descending ? '-' : ''}${key.path}${key.type === '' ? '' : `:${key.type}`}`).join(',');
}

/** The order after a click on a column: up, down, none. With shift it is added behind the others. */
export function sortedBy(text: string, key: string, add: boolean): string {
  const [clicked] = sortKeys(key);
  if (clicked === undefined) return text;
  const keys = sortKeys(text);
  const now = keys.find((one) => one.path === clicked.path);
  const next = now === undefined ? [clicked] : now.descending ? [] : [{ ...now, descending: true }];
  if (!add) return sortText(next);
  return sortText(
    now === undefined ? [...keys, clicked] : keys.flatMap((one) => (one.path === clicked.path ? next : [one])),
  );
}
