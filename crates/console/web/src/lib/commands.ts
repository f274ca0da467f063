// Views and actions as commands of kubectl and curl, for a shell.

import type { ListQuery } from '../api/lists';
import { selection } from '../api/lists';
import { pathOf } from '../api/lists';

/** A word of a shell's command line. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function resourceName(of: { group: string; version: string; plural: string }): string {
  return of.group === '' ? of.plural : `${of.plural}.${of.version}.${of.group}`;
}

/** The command that lists what a view shows. What plain kubectl can't ask is asked of the raw path. */
export function kubectlOfList(query: ListQuery): string {
  const { collection, namespaces, labels, fields, terms, search, where, sort, at, revision } = query;
  const isPlain = terms.length === 0 && search === '' && where === '' && sort === '' && at === '' && revision === '';
  if (!isPlain || namespaces.length > 1) return `kubectl get --raw ${quoted(rawPath(query))}`;
  const [namespace] = namespaces;
  const scope = namespace === undefined ? ['-A'] : ['-n', quoted(namespace)];
  const selectors = [
    ...(labels === '' ? [] : ['-l', quoted(labels)]),
    ...(fields === '' ? [] : ['--field-selector', quoted(fields)]),
  ];
  return ['kubectl', 'get', resourceName(collection), ...scope, ...selectors].join(' ');
}

/** The path of a view with all that is asked. */
export function rawPath(query: ListQuery): string {
  const params = selection({ ...query, revision: query.at === '' ? query.revision : '' });
  if (query.sort !== '') params.set('keelson.io/sortBy', query.sort);
  params.set('limit', String(query.limit));
  if (query.page > 1) params.set('keelson.io/page', String(query.page));
  return `${pathOf(query)}?${params.toString()}`;
}

export function kubectlOf(
  verb: string,
  of: { group: string; version: string; plural: string },
  namespace: string,
  name: string,
) {
  const scope = namespace === '' ? [] : ['-n', quoted(namespace)];
  return ['kubectl', verb, resourceName(of), quoted(name), ...scope].join(' ');
}

export interface Curl {
  method?: string;
  path: string;
  contentType?: string;
  body?: string;
}

/** A command of curl. The token is a variable of the shell, so that none is in its history. */
export function curlOf({ method = 'GET', path, contentType, body }: Curl): string {
  const parts = ['curl', '--cacert ca.crt', '-H "Authorization: Bearer $TOKEN"'];
  if (method !== 'GET') parts.push(`-X ${method}`);
  if (contentType !== undefined) parts.push(`-H ${quoted(`Content-Type: ${contentType}`)}`);
  if (body !== undefined) parts.push(`-d ${quoted(body)}`);
  parts.push(quoted(`${window.location.origin}${path}`));
  return parts.join(' \\\n  ');
}
