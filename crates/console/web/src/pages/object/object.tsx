// One object: its content, events, history, owners and dependents, and the actions on it.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { mayI } from '../../api/access';
import { hasCode, isAborted } from '../../api/client';
import { discovery, findResource, fullName, type Resource } from '../../api/discovery';
import { collectionPath } from '../../api/paths';
import { type Name, readAt, readObject } from '../../api/objects';
import type { KubeObject } from '../../api/types';
import { follow } from '../../api/watch';
import { shown as withoutNotes } from '../../lib/objects';
import { visible } from '../../lib/visible';
import { go, href, type Place, unguard, withParams } from '../../state/router';
import { useStore } from '../../state/store';
import { announce } from '../../ui/announce';
import { type Key, useKeys } from '../../ui/keys';
import { Problem } from '../../ui/problem';
import { YamlView } from '../../ui/yaml-view';
import { groupOf, groupSegment } from '../list/query';
import { DeleteDialog } from './delete';
import { Editor } from './editor';
import { Events } from './events';
import { History } from './history';
import { Owners } from './owners';
import { Related } from './related';
import { ScaleDialog } from './scale';
import { Summary } from './summary';

export interface Subject {
  resource: Pick<Resource, 'group' | 'version' | 'plural'>;
  known: Resource | undefined;
  of: Name;
  object: KubeObject;
}

const TABS = {
  object: 'Object',
  edit: 'Edit',
  events: 'Events',
  related: 'Related',
  history: 'History',
  owners: 'Owners of fields',
};
type Tab = keyof typeof TABS;

function isTab(text: string | null): text is Tab {
  return text !== null && Object.hasOwn(TABS, text);
}

interface Loaded {
  object: KubeObject | null;
  error: unknown;
  deleted: boolean;
}

/** The object as it is now; it follows what is written. */
function useObject(resource: Subject['resource'], of: Name, past: string): Loaded {
  const [loaded, setLoaded] = useState<Loaded>({ object: null, error: null, deleted: false });
  const { group, version, plural } = resource;
  const { namespace, name } = of;
  useEffect(() => {
    const abort = new AbortController();
    const [wanted, its] = [
      { group, version, plural },
      { namespace, name },
    ];
    const failed = (error: unknown) => {
      if (!isAborted(error)) setLoaded((now) => ({ ...now, error }));
    };
    const read = async () => {
      const object =
        past === '' ? await readObject(wanted, its, abort.signal) : await readAt(wanted, its, past, abort.signal);
      setLoaded({ object, error: null, deleted: object === null });
      return object;
    };
    setLoaded((now) => (now.object?.metadata.name === name ? now : { object: null, error: null, deleted: false }));
    void read().then((object) => {
      if (past !== '' || object === null) return;
      const params = new URLSearchParams({ fieldSelector: `metadata.name=${name}` });
      const path = collectionPath(wanted, namespace);
      const changed = (changes: { kind: string }[]) => {
        if (changes.at(-1)?.kind === 'DELETED') setLoaded((now) => ({ ...now, deleted: true }));
        else void read().catch(failed);
      };
      const follower = { changed, lost: () => void read().catch(failed) };
      void follow(path, params, object.metadata.resourceVersion ?? '', follower, abort.signal);
    }, failed);
    return () => abort.abort();
  }, [group, version, plural, namespace, name, past]);
  return loaded;
}

interface Rights {
  update: boolean;
  remove: boolean;
  scale: boolean;
}

function useRights(known: Resource | undefined, of: Name): Rights {
  const [rights, setRights] = useState<Rights>({ update: false, remove: false, scale: false });
  const { namespace, name } = of;
  useEffect(() => {
    if (known === undefined) return;
    let current = true;
    const ask = async (verb: string, served: boolean, subresource?: string) =>
      served &&
      (await mayI({ verb, resource: known, namespace, name, subresource: subresource ?? '' }).catch(() => true));
    const hasScale = known.subresources.includes('scale');
    void Promise.all([
      ask('update', known.verbs.includes('update')),
      ask('delete', known.verbs.includes('delete')),
      ask('patch', hasScale, 'scale'),
    ]).then(([update, remove, scale]) => current && setRights({ update, remove, scale }));
    return () => {
      current = false;
    };
  }, [known, namespace, name]);
  return rights;
}

export function ObjectPage({ place }: { place: Place }) {
  const [, group = '', version = '', plural = '', space = '-', name = ''] = place.path;
  const resource = useMemo(() => ({ group: groupOf(group), version, plural }), [group, version, plural]);
  const of = useMemo(() => ({ namespace: space === '-' ? '' : space, name }), [space, name]);
  const { resources } = useStore(discovery);
  const known = useMemo(
    () => findResource(resources, resource.group, version, plural),
    [resources, resource, version, plural],
  );
  const past = place.params.get('rv') ?? '';
  const loaded = useObject(resource, of, past);
  const rights = useRights(known, of);
  const [dialog, setDialog] = useState<'scale' | 'delete' | null>(null);
  const asked = place.params.get('tab');
  const tab: Tab = isTab(asked) ? asked : 'object';
  const list = href(['r', groupSegment(resource.group), version, plural], { ns: of.namespace });
  const keys = useMemo((): Key[] => {
    const open = (next: Tab) => () => go(withParams(place, { tab: next === 'object' ? '' : next }));
    const first: Key[] = [
      { keys: 'u', does: 'up to the list', run: () => go(list) },
      { keys: 'o', does: 'the object', run: open('object') },
      { keys: 'v', does: 'its events', run: open('events') },
      { keys: 'R', does: 'its owners and dependents', run: open('related') },
      { keys: 'h', does: 'its history', run: open('history') },
    ];
    if (rights.update) first.push({ keys: 'e', does: 'edit', run: open('edit') });
    if (rights.scale) first.push({ keys: 's', does: 'scale', run: () => setDialog('scale') });
    if (rights.remove) first.push({ keys: 'D', does: 'delete', run: () => setDialog('delete') });
    return first;
  }, [place, list, rights]);
  useKeys(keys);
  useEffect(() => {
    document.title = `${visible(name)} · ${fullName(resource)} · keelson`;
  }, [name, resource]);
  const { object, error, deleted } = loaded;
  const subject = object === null ? null : { resource, known, of, object };
  return (
    <section class="object">
      <nav class="crumbs" aria-label="Where this is">
        <a href={href(['r', groupSegment(resource.group), version, plural])}>{fullName(resource)}</a>
        {of.namespace !== '' && (
          <>
            {' / '}
            <a href={list}>{of.namespace}</a>
          </>
        )}
      </nav>
      <header class="heading">
        <h1 tabIndex={-1}>
          {visible(name)} <small>{object?.kind ?? plural}</small>
        </h1>
        <div class="actions">
          {known?.subresources.includes('scale') === true && (
            <Action text="Scale" allowed={rights.scale} onClick={() => setDialog('scale')} />
          )}
          {known?.verbs.includes('delete') === true && (
            <Action text="Delete" allowed={rights.remove && !deleted} danger onClick={() => setDialog('delete')} />
          )}
        </div>
      </header>
      {deleted && (
        <p class="notice" role="status">
          {past === '' ? 'This object was deleted. What is shown is its last state.' : 'There was no such object then.'}
        </p>
      )}
      {past !== '' && (
        <p class="notice">
          As it was at revision {past}. <a href={withParams(place, { rv: '' })}>Show it as it is now</a>
        </p>
      )}
      {error !== null && object === null && (
        <Problem error={error}>{hasCode(error, 404) && <a href={list}>To the list</a>}</Problem>
      )}
      {object === null && error === null && !deleted && <p class="loading">Loading…</p>}
      {subject !== null && (
        <>
          <Tabs place={place} tab={tab} mayEdit={known?.verbs.includes('update') !== false && past === ''} />
          <div class="tab" role="tabpanel" id="tabpanel" aria-labelledby={`tab-${tab}`}>
            <TabPage tab={tab} subject={subject} place={place} mayUpdate={rights.update} />
          </div>
        </>
      )}
      {dialog === 'scale' && subject !== null && <ScaleDialog subject={subject} onClose={() => setDialog(null)} />}
      {dialog === 'delete' && subject !== null && (
        <DeleteDialog
          subject={subject}
          onClose={() => setDialog(null)}
          onDone={() => {
            announce(`${name} is deleted`);
            unguard();
            go(list);
          }}
        />
      )}
    </section>
  );
}

function Action(props: { text: string; allowed: boolean; danger?: boolean; onClick: () => void }) {
  return (
    <button
      type="button"
      class={props.danger === true ? 'danger' : ''}
      disabled={!props.allowed}
      title={props.allowed ? undefined : 'You may not do this'}
      onClick={props.onClick}
    >
      {props.text}
    </button>
  );
}

function Tabs({ place, tab, mayEdit }: { place: Place; tab: Tab; mayEdit: boolean }) {
  const all = (Object.keys(TABS) as Tab[]).filter((one) => one !== 'edit' || mayEdit);
  const open = (next: Tab | undefined) => {
    if (next === undefined) return;
    go(withParams(place, { tab: next === 'object' ? '' : next }));
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <div
      class="tabs"
      role="tablist"
      aria-label="About this object"
      onKeyDown={(event) => {
        const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
        if (by !== 0) open(all[(all.indexOf(tab) + by + all.length) % all.length]);
      }}
    >
      {all.map((one) => (
        <button
          type="button"
          role="tab"
          key={one}
          id={`tab-${one}`}
          aria-selected={one === tab}
          aria-controls="tabpanel"
          tabIndex={one === tab ? 0 : -1}
          onClick={() => open(one)}
        >
          {TABS[one]}
        </button>
      ))}
    </div>
  );
}

function TabPage(props: { tab: Tab; subject: Subject; place: Place; mayUpdate: boolean }) {
  const { subject, place } = props;
  const plain = useMemo(() => withoutNotes(subject.object), [subject.object]);
  switch (props.tab) {
    case 'object':
      return (
        <>
          <Summary subject={subject} />
          <YamlView value={plain} />
        </>
      );
    case 'edit':
      return props.mayUpdate ? <Editor subject={subject} /> : <p class="problem">You may not change this object.</p>;
    case 'events':
      return <Events subject={subject} />;
    case 'related':
      return <Related subject={subject} />;
    case 'history':
      return <History subject={subject} place={place} />;
    case 'owners':
      return <Owners object={subject.object} />;
  }
}
