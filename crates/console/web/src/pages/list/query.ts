// The query of a list page, parsed from its URL.

import type { ListQuery } from '../../api/lists';
import { groupOf } from '../../lib/links';
import type { Place } from '../../state/router';

export const PAGE_SIZES = [20, 50, 100, 200, 500];
const USUAL_SIZE = 50;

function whole(text: string | null, usual: number, most: number): number {
  const number = Number(text ?? usual);
  return Number.isInteger(number) && number >= 1 ? Math.min(number, most) : usual;
}

/** The namespaces of an address; none for all. */
export function namespacesOf(params: URLSearchParams): string[] {
  return [...new Set((params.get('ns') ?? '').split(',').map((one) => one.trim()))].filter((one) => one !== '');
}

/** The revision of an address; empty where it is none. */
export function revisionOf(params: URLSearchParams): string {
  const text = params.get('rv') ?? '';
  return /^[1-9]\d{0,18}$/.test(text) ? text : '';
}

/** The time of an address; empty where it is none. */
export function momentOf(params: URLSearchParams): string {
  const text = params.get('at') ?? '';
  return Number.isNaN(Date.parse(text)) ? '' : text;
}

/** Whether a part of the view, such as `wide`, is on. */
export function isOn(params: URLSearchParams, name: string, usual: boolean): boolean {
  const text = params.get(name);
  return text === null ? usual : text === '1';
}

export function queryOf(place: Place): ListQuery {
  const [, group = '', version = '', plural = ''] = place.path;
  const { params, state } = place;
  const revision = revisionOf(params);
  return {
    collection: { group: groupOf(group), version, plural },
    namespaces: namespacesOf(params),
    labels: params.get('labels') ?? '',
    fields: params.get('fields') ?? '',
    terms: params.getAll('f'),
    where: params.get('where') ?? '',
    search: params.get('q') ?? '',
    // Rows of a group are together.
    sort: [params.get('group') ?? '', params.get('sort') ?? ''].filter((one) => one !== '').join(','),
    limit: whole(params.get('limit'), USUAL_SIZE, 500),
    page: whole(params.get('page'), 1, 1_000_000_000),
    revision: revision === '' ? (state.snapshot?.revision ?? '') : revision,
    at: momentOf(params),
    token: state.token ?? '',
  };
}

/** Whether the page is of the past by the user's wish, and so does not follow what is written. */
export function isPast(place: Place): boolean {
  return revisionOf(place.params) !== '' || momentOf(place.params) !== '';
}

export interface SortKey {
  path: string;
  type: string;
  descending: boolean;
}

/** The parts of an order: commas in quotes and brackets are of a name. */
function parts(text: string): string[] {
  return text.match(/(?:'(?:[^'\\]|\\.)*'|[^,'])+/g) ?? [];
}

/** The keys of an order, `-.spec.replicas:number` and the like. */
export function sortKeys(text: string): SortKey[] {
  return parts(text)
    .filter((part) => part !== '')
    .map((part) => {
      const descending = part.startsWith('-');
      const rest = descending ? part.slice(1) : part;
      const match = /^(column\('(?:[^'\\]|\\.)*'\)|.*?)(?::(string|number|quantity|time|version))?$/.exec(rest);
      return { path: match?.[1] ?? rest, type: match?.[2] ?? '', descending };
    });
}

export function sortText(keys: SortKey[]): string {
  return keys.map((key) => `${key.descending ? '-' : ''}${key.path}${key.type === '' ? '' : `:${key.type}`}`).join(',');
}

/** The order after a click on a column: as the column rises, as it falls, none. With shift it is added behind the others. */
export function sortedBy(text: string, key: string, add: boolean): string {
  const [clicked] = sortKeys(key);
  if (clicked === undefined) return text;
  const keys = sortKeys(text);
  const now = keys.find((one) => one.path === clicked.path);
  const falls = { ...clicked, descending: !clicked.descending };
  const next = now === undefined ? [clicked] : now.descending === clicked.descending ? [falls] : [];
  if (!add) return sortText(next);
  return sortText(
    now === undefined ? [...keys, clicked] : keys.flatMap((one) => (one.path === clicked.path ? next : [one])),
  );
}
