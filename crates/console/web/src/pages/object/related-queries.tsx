// Objects that belong to an object by selectors and names: pods of a service, users of a config map, roles of an account.

import { useEffect, useState } from 'preact/hooks';
import { getJson, isAborted, METADATA_LIST, JSON_TYPE } from '../../api/client';
import { discovery, fullName, preferredResource, type Resource } from '../../api/discovery';
import { collectionPath } from '../../api/paths';
import type { KubeObject, ObjectList } from '../../api/types';
import { listHref, objectHref } from '../../lib/links';
import { at } from '../../lib/objects';
import { type Query, queriesOf, selects } from '../../lib/references';
import { visible } from '../../lib/visible';
import { useStore } from '../../state/store';
import type { Subject } from './object';

const SHOWN = 30;

interface Found {
  query: Query;
  resource: Resource;
  items: KubeObject[];
  more: number;
}

async function ask(query: Query, resource: Resource, subject: Subject, signal: AbortSignal): Promise<Found> {
  const params = new URLSearchParams({ limit: String(SHOWN) });
  if (query.labels !== undefined) params.set('labelSelector', query.labels);
  if (query.filter !== undefined) params.set('keelson.io/filter', query.filter);
  // A selector is read of the services themselves.
  const bySelector = query.plural === 'services' && fullName(subject.resource) === 'pods';
  if (bySelector) params.set('limit', '500');
  const path = `${collectionPath(resource, resource.namespaced ? query.namespace : '')}?${params.toString()}`;
  const list = await getJson<ObjectList>(path, { accept: bySelector ? JSON_TYPE : METADATA_LIST, signal });
  const labels = subject.object.metadata.labels ?? {};
  const items = bySelector
    ? list.items.filter((one) => selects((at(one, 'spec', 'selector') ?? {}) as Record<string, unknown>, labels))
    : list.items;
  return { query, resource, items, more: list.metadata.remainingItemCount ?? 0 };
}

export function RelatedQueries({ subject }: { subject: Subject }) {
  const { resources } = useStore(discovery);
  const [found, setFound] = useState<Found[]>([]);
  const { uid } = subject.object.metadata;
  useEffect(() => {
    const abort = new AbortController();
    setFound([]);
    for (const query of queriesOf(fullName(subject.resource), subject.object)) {
      const resource = preferredResource(resources, query.group, query.plural);
      if (resource === undefined) continue;
      ask(query, resource, subject, abort.signal)
        .then((one) => setFound((now) => (one.items.length === 0 ? now : [...now, one])))
        .catch((error: unknown) => {
          // Lists that the server refuses are not shown.
          if (isAborted(error)) return;
        });
    }
    return () => abort.abort();
    // A change of the object itself starts no new search.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [resources, uid]);
  return (
    <>
      {found.map(({ query, resource, items, more }) => {
        const params: Record<string, string> = { ns: resource.namespaced ? query.namespace : '' };
        if (query.labels !== undefined) params['labels'] = query.labels;
        if (query.filter !== undefined) params['f'] = query.filter;
        return (
          <section key={query.title}>
            <h2>{query.title === 'Services in its namespace' ? 'Services that send to it' : query.title}</h2>
            <ul class="members queried">
              {items.slice(0, SHOWN).map((one) => (
                <li key={one.metadata.uid}>
                  <a href={objectHref(resource, one.metadata.namespace, one.metadata.name)}>
                    {visible(one.metadata.name)}
                  </a>
                </li>
              ))}
            </ul>
            {query.title !== 'Services in its namespace' && (
              <p>
                <a href={listHref(resource, params)}>
                  {more > 0 ? `All ${items.length + more} as a list` : 'As a list'}
                </a>
              </p>
            )}
          </section>
        );
      })}
    </>
  );
}
