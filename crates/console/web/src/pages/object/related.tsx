// The owners of an object, and its dependents. These are searched in every collection that the user may list.

import { useEffect, useState } from 'preact/hooks';
import { allows, rulesIn } from '../../api/access';
import { getJson, isAborted, METADATA_LIST } from '../../api/client';
import { discovery, fullName, type Resource } from '../../api/discovery';
import { collectionPath } from '../../api/paths';
import type { ObjectList, ObjectMeta } from '../../api/types';
import { objectHref } from '../../lib/links';
import { referencesOf } from '../../lib/references';
import { visible } from '../../lib/visible';
import { useStore } from '../../state/store';
import type { Subject } from './object';
import { ObjectLink } from './overview/blocks';
import { RelatedQueries } from './related-queries';
import { OwnerLinks } from './summary';

/** How many collections are asked at a time, and how many dependents of each are shown. */
const AT_ONCE = 4;
const SHOWN = 50;

interface Dependents {
  resource: Resource;
  members: ObjectMeta[];
  more: boolean;
}

interface Search {
  found: Dependents[];
  asked: number;
  all: number;
  failed: string[];
}

const NOTHING: Search = { found: [], asked: 0, all: 0, failed: [] };

/** Collections that may hold dependents: an owner owns in its own namespace, or is in none. */
async function candidates(resources: Resource[], namespace: string): Promise<Resource[]> {
  const rules = await rulesIn(namespace === '' ? 'default' : namespace).catch(() => null);
  const listed = resources.filter(
    (one) =>
      one.preferred &&
      one.verbs.includes('list') &&
      !one.stale &&
      one.kind !== 'Event' &&
      (namespace === '' || one.namespaced),
  );
  return listed.filter((one) => rules === null || rules.incomplete || allows(rules, 'list', one));
}

async function dependents(subject: Subject, resource: Resource, signal: AbortSignal): Promise<Dependents> {
  const { object, of } = subject;
  const name = of.name.replaceAll("'", "\\'");
  const params = new URLSearchParams({
    limit: String(SHOWN),
    'keelson.io/filter': `owner(${object.kind}, '${name}')`,
    'keelson.io/omitManagedFields': 'true',
  });
  const path = `${collectionPath(resource, of.namespace)}?${params.toString()}`;
  const list = await getJson<ObjectList>(path, { accept: METADATA_LIST, signal });
  const members = list.items.map((item) => item.metadata);
  const own = members.filter((one) => one.ownerReferences?.some((owner) => owner.uid === object.metadata.uid) === true);
  return { resource, members: own, more: (list.metadata.continue ?? '') !== '' };
}

function useDependents(subject: Subject): Search {
  const { resources } = useStore(discovery);
  const [search, setSearch] = useState<Search>(NOTHING);
  const { uid } = subject.object.metadata;
  const { namespace, name } = subject.of;
  useEffect(() => {
    const abort = new AbortController();
    const run = async () => {
      const left = await candidates(resources, namespace);
      setSearch({ ...NOTHING, all: left.length });
      const ask = async () => {
        for (let next = left.shift(); next !== undefined; next = left.shift()) {
          const resource = next;
          try {
            const one = await dependents(subject, resource, abort.signal);
            const found = one.members.length > 0 ? [one] : [];
            setSearch((now) => ({ ...now, asked: now.asked + 1, found: [...now.found, ...found] }));
          } catch (error) {
            if (isAborted(error)) return;
            setSearch((now) => ({ ...now, asked: now.asked + 1, failed: [...now.failed, fullName(resource)] }));
          }
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, ask));
    };
    void run();
    return () => abort.abort();
    // A change of the object itself starts no new search.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [resources, uid, namespace, name]);
  return search;
}

export function Related({ subject }: { subject: Subject }) {
  const search = useDependents(subject);
  const owners = subject.object.metadata.ownerReferences ?? [];
  const references = referencesOf(fullName(subject.resource), subject.object);
  const done = search.all > 0 && search.asked === search.all;
  return (
    <div class="related">
      {references.length > 0 && (
        <>
          <h2>It refers to</h2>
          <ul class="members">
            {references.map((one) => (
              <li key={`${one.plural}/${one.namespace}/${one.name}`}>
                <ObjectLink {...one}>
                  <small>{one.role}</small> {visible(one.name)} <small>{one.plural}</small>
                </ObjectLink>
              </li>
            ))}
          </ul>
        </>
      )}
      <RelatedQueries subject={subject} />
      <h2>Owners</h2>
      {owners.length === 0 ? <p class="muted">Nothing owns this object.</p> : <OwnerLinks subject={subject} />}
      <h2>Dependents</h2>
      <p class="muted" role="status">
        {done
          ? `${search.all} collections were asked.`
          : search.all > 0 && (
              <>
                <progress value={search.asked} max={search.all} aria-label="Collections asked" /> {search.asked} of{' '}
                {search.all} collections
              </>
            )}
        {done && search.found.length === 0 && ' None holds an object that this one owns.'}
        {search.failed.length > 0 && ` Not answered: ${search.failed.join(', ')}.`}
      </p>
      {search.found.map(({ resource, members, more }) => (
        <section key={fullName(resource)}>
          <h3>{resource.kind}</h3>
          <ul class="members">
            {members.map((one) => (
              <li key={one.uid}>
                <a href={objectHref(resource, one.namespace, one.name)}>{visible(one.name)}</a>
              </li>
            ))}
          </ul>
          {more && <p class="muted">and more</p>}
        </section>
      ))}
    </div>
  );
}
