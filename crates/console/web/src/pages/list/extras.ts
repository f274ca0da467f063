// Further fields of the rows of a list: values at paths, and the reason for which a pod does not run.

import { useEffect, useState } from 'preact/hooks';
import { getJson } from '../../api/client';
import { type ListQuery, type Page, pathOf, selection } from '../../api/lists';
import type { KubeObject, ObjectList } from '../../api/types';
import { text } from '../../lib/objects';
import { asksWhy } from '../../lib/why';

/** The fields that tell why a pod does not run. */
const WHY = ['.status'];

export type Extras = Map<string, KubeObject>;

/** The paths of the fields to read beside the table: none where the table tells all. */
export function extraPaths(page: Page | null, plural: string, group: string, added: string[]): string[] {
  const isPods = plural === 'pods' && group === '';
  const at = (name: string) => page?.columns.findIndex((column) => column.name === name) ?? -1;
  const [status, ready] = [at('Status'), at('Ready')];
  const asks = isPods && page?.rows.some((row) => asksWhy(text(row.cells[status]), text(row.cells[ready])));
  return [...(asks === true ? WHY : []), ...added];
}

/** Objects of the page with some of their fields, by uid. */
export function useExtras(query: ListQuery, page: Page | null, paths: string[]): Extras {
  const [extras, setExtras] = useState<Extras>(new Map());
  const key =
    page === null || paths.length === 0
      ? ''
      : JSON.stringify([paths, page.revision, { ...query, revision: '', at: '' }]);
  useEffect(() => {
    if (page === null || key === '') {
      setExtras((now) => (now.size === 0 ? now : new Map()));
      return;
    }
    const abort = new AbortController();
    const params = selection({ ...query, revision: page.revision, at: '' });
    params.set('limit', String(query.limit));
    if (page.extended) {
      params.set('keelson.io/page', String(query.page));
      params.set('keelson.io/fields', ['.metadata.uid', ...paths].join(','));
      if (query.sort !== '') params.set('keelson.io/sortBy', query.sort);
    }
    getJson<ObjectList>(`${pathOf(query)}?${params.toString()}`, { signal: abort.signal })
      .then(({ items }) => setExtras(new Map(items.map((one) => [one.metadata.uid ?? '', one]))))
      // The table is there; only the further columns stay empty.
      .catch(() => undefined);
    return () => abort.abort();
    // The page and the query of a key are the same.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [key]);
  return extras;
}
