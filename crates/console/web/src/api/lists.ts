// Pages of a collection: Tables of one snapshot, sorted, selected and counted by the server. The console holds only one
// page.

import { bodyOf, getJson, METADATA_LIST, send, TABLE } from './client';
import { isMap } from '../lib/json';
import { text } from '../lib/objects';
import { own } from '../lib/own';
import { oneOf } from '../lib/paths';
import { collectionPath } from './paths';
import type { Column, Json, ObjectList, Row, Table, ValueCounts } from './types';

export interface Collection {
  group: string;
  version: string;
  plural: string;
}

/** What is asked of a collection; empty texts ask nothing. */
export interface ListQuery {
  collection: Collection;
  /** One or several; none for all. */
  namespaces: string[];
  labels: string;
  fields: string;
  /** Terms that have to hold together. */
  terms: string[];
  where: string;
  search: string;
  sort: string;
  limit: number;
  page: number;
  /** The snapshot to read; empty for the newest. */
  revision: string;
  /** A moment of the past to read, in place of a snapshot. */
  at: string;
  /** Where to go on, of a server that has no page numbers. */
  token: string;
}

export interface Page {
  columns: Column[];
  rows: Row[];
  revision: string;
  /** How many there are over all pages; undefined where the server does not say. */
  total: number | undefined;
  lookedAt: number | undefined;
  /** Whether the server has page numbers, orders and counts. */
  extended: boolean;
  /** Whether the server has sent all rows at once, which are divided into pages here. */
  isDivided: boolean;
  token: string;
  milliseconds: number;
}

function joined(terms: string[]): string {
  const [first, ...others] = terms;
  if (first === undefined || others.length === 0) return first ?? '';
  return terms.map((term) => `(${term})`).join(' and ');
}

/** The parameters that say which objects are meant. */
export function selection(query: ListQuery): URLSearchParams {
  const params = new URLSearchParams();
  const set = (name: string, value: string) => value !== '' && params.set(name, value);
  set('labelSelector', query.labels);
  set('fieldSelector', query.fields);
  const several = query.namespaces.length > 1 ? oneOf('.metadata.namespace', query.namespaces) : undefined;
  set('keelson.io/filter', joined(several === undefined ? query.terms : [several, ...query.terms]));
  set('keelson.io/where', query.where);
  set('keelson.io/search', query.search);
  if (query.at !== '') params.set('keelson.io/at', query.at);
  else if (query.revision !== '') {
    params.set('resourceVersion', query.revision);
    params.set('resourceVersionMatch', 'Exact');
  }
  return params;
}

function count(headers: Headers, name: string): number | undefined {
  const number = Number(headers.get(name) ?? Number.NaN);
  return Number.isSafeInteger(number) && number >= 0 ? number : undefined;
}

/** The most columns of a table that are shown. */
const MOST_COLUMNS = 200;

/** The columns of a table, each with the members that a column has. */
function columnsOf(table: Table): Column[] {
  const columns: unknown[] = Array.isArray(table.columnDefinitions) ? table.columnDefinitions : [];
  return columns.slice(0, MOST_COLUMNS).map((one) => {
    const column = isMap(one) ? one : {};
    const priority = column['priority'];
    return {
      name: text(column['name']),
      type: text(column['type']),
      format: text(column['format']),
      description: text(column['description']),
      priority: typeof priority === 'number' ? priority : 0,
    };
  });
}

/** The rows of a table. Aggregated servers may send anything, so each is checked to be a row. */
export function rowsOf(table: Table): Row[] {
  const isRow = (row: Partial<Row> | null) =>
    Array.isArray(row?.cells) && typeof (row.object as Partial<Row['object']> | null)?.metadata?.name === 'string';
  if (typeof (table as Partial<Table> | null)?.metadata !== 'object') {
    throw new Error('The server that has these objects answers with something that is no table.');
  }
  const rows = table.rows ?? [];
  if (!Array.isArray(rows) || !rows.every(isRow)) {
    throw new Error(
      'The server that has these objects answers with a table that can not be shown: rows name no object.',
    );
  }
  return rows.map(plainRow);
}

const TEXTS = ['namespace', 'uid', 'resourceVersion', 'creationTimestamp', 'deletionTimestamp'] as const;

/** A row whose names and times are texts, without those that are none. */
function plainRow(row: Row): Row {
  const { metadata } = row.object;
  if (TEXTS.every((name) => metadata[name] === undefined || typeof metadata[name] === 'string')) return row;
  const isWrong = (name: string) =>
    (TEXTS as readonly string[]).includes(name) &&
    typeof own(metadata as unknown as Record<string, unknown>, name) !== 'string';
  const kept = Object.entries(metadata).filter(([name]) => !isWrong(name));
  return {
    ...row,
    object: { ...row.object, metadata: Object.fromEntries(kept) as unknown as Row['object']['metadata'] },
  };
}

/** The path of a list: of one namespace, or of all where several are chosen. */
export function pathOf(query: ListQuery): string {
  return collectionPath(query.collection, query.namespaces.length === 1 ? (query.namespaces[0] ?? '') : '');
}

export async function readPage(query: ListQuery, signal?: AbortSignal): Promise<Page> {
  const params = selection(query);
  params.set('limit', String(query.limit));
  params.set('keelson.io/omitManagedFields', 'true');
  if (query.token !== '') {
    params.set('continue', query.token);
    params.delete('resourceVersion');
    params.delete('resourceVersionMatch');
  } else {
    params.set('keelson.io/page', String(query.page));
  }
  if (query.sort !== '') params.set('keelson.io/sortBy', query.sort);
  const begun = performance.now();
  const path = pathOf(query);
  const response = await send(`${path}?${params.toString()}`, { accept: TABLE, signal });
  const table = await bodyOf<Table>(response);
  const total = count(response.headers, 'Keelson-Total-Count');
  const all = rowsOf(table);
  // Some servers know no limit. Their rows are divided into pages here.
  const isDivided = all.length > query.limit;
  const rows = isDivided ? all.slice((query.page - 1) * query.limit, query.page * query.limit) : all;
  const remaining: unknown = table.metadata.remainingItemCount;
  const left = typeof remaining === 'number' ? remaining : undefined;
  const isWhole = query.token === '' && (table.metadata.continue ?? '') === '';
  return {
    columns: columnsOf(table),
    rows,
    revision: table.metadata.resourceVersion ?? '',
    total: isDivided
      ? all.length
      : (total ?? (isWhole ? rows.length : left === undefined ? undefined : rows.length + left)),
    lookedAt: count(response.headers, 'Keelson-Looked-At'),
    extended: total !== undefined && !isDivided,
    isDivided,
    token: table.metadata.continue ?? '',
    milliseconds: performance.now() - begun,
  };
}

/** How many objects a query had at a moment of the past; undefined where the server does not count. */
export async function readCountAt(query: ListQuery, moment: string, signal?: AbortSignal): Promise<number | undefined> {
  const params = selection({ ...query, revision: '', at: moment });
  params.set('limit', '1');
  params.set('keelson.io/count', 'true');
  const response = await send(`${pathOf(query)}?${params.toString()}`, { accept: METADATA_LIST, signal });
  return count(response.headers, 'Keelson-Total-Count');
}

/** How many objects have which value at a path, the most frequent first. */
export async function readGroups(
  query: ListQuery,
  path: string,
  limit: number,
  signal?: AbortSignal,
): Promise<ValueCounts> {
  const params = selection(query);
  params.set('keelson.io/groupBy', path);
  params.set('limit', String(limit));
  return getJson<ValueCounts>(`${pathOf(query)}?${params.toString()}`, { signal });
}

/** Some objects as they are, to see which fields there are. */
export async function readSample(query: ListQuery, signal?: AbortSignal): Promise<Json[]> {
  const params = new URLSearchParams({ limit: '20', resourceVersion: '0' });
  const path = `${pathOf(query)}?${params.toString()}`;
  const list = await getJson<ObjectList>(path, { signal });
  return list.items.slice(0, 20) as unknown as Json[];
}
