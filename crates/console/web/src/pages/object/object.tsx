// One object: its content, events, history, owners and dependents, and the actions on it.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { mayI } from '../../api/access';
import { hasCode, isAborted } from '../../api/client';
import { connection } from '../../api/connection';
import { discovery, findResource, fullName, type Resource } from '../../api/discovery';
import { collectionPath } from '../../api/paths';
import { isAsked, type Name, readAt, readObject } from '../../api/objects';
import type { KubeObject } from '../../api/types';
import { type Change, follow } from '../../api/watch';
import { bind } from '../../lib/keymap';
import { pluralOf, topicOf } from '../../lib/kinds';
import { groupOf, listHref } from '../../lib/links';
import { shown as withoutNotes, text } from '../../lib/objects';
import { stateOf } from '../../lib/states';
import { clock } from '../../lib/time';
import { visible } from '../../lib/visible';
import { noteRecent } from '../../state/choices';
import { go, type Place, unguard, withParams } from '../../state/router';
import { useStore } from '../../state/store';
import { announce } from '../../ui/announce';
import { Icon } from '../../ui/icon';
import { type Key, useKeys } from '../../ui/keys';
import { Problem } from '../../ui/problem';
import { Status } from '../../ui/status';
import { YamlView } from '../../ui/yaml-view';
import { lastListOf } from '../list/last';
import { ActionDialog, type Asked, ObjectActions } from './actions';
import { DeleteDialog } from './delete';
import { Editor } from './editor';
import { Events } from './events';
import { History } from './history';
import { Logs } from './logs';
import { Overview } from './overview/overview';
import { Owners } from './owners';
import { PortPage } from './port';
import { Related } from './related';
import { ScaleDialog } from './scale';
import { Shell } from './shell';

export interface Subject {
  resource: Pick<Resource, 'group' | 'version' | 'plural'>;
  known: Resource | undefined;
  of: Name;
  object: KubeObject;
}

const TABS = {
  object: 'Overview',
  logs: 'Logs',
  shell: 'Shell',
  port: 'Port',
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
  /** What was read: the object, and the revision of the past. */
  of: string;
  object: KubeObject | null;
  error: unknown;
  deleted: boolean;
  /** Since when changes do not arrive; null while they do. */
  brokenSince: number | null;
}

const NOTHING: Loaded = { of: '', object: null, error: null, deleted: false, brokenSince: null };

/** The object as it is now; it follows what is written. */
function useObject(resource: Subject['resource'], of: Name, past: string, visit: number): Loaded {
  const [loaded, setLoaded] = useState<Loaded>(NOTHING);
  const { returned } = useStore(connection);
  // A failure is followed by another read only when the page is visited again, and by none by itself.
  const tried = useRef(visit);
  if (loaded.error !== null) tried.current = visit;
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
      setLoaded((now) => ({ ...now, object, error: null, deleted: object === null }));
      return object;
    };
    // An object of another kind, namespace or revision is not shown under this address.
    const key = [group, version, plural, namespace, name, past].join('/');
    setLoaded((now) => (now.of === key ? { ...now, error: null } : { ...NOTHING, of: key }));
    void read().then((object) => {
      if (past !== '' || object === null) return;
      const params = new URLSearchParams({ fieldSelector: `metadata.name=${name}` });
      const path = collectionPath(wanted, namespace);
      let seen = object.metadata.resourceVersion;
      const changed = (changes: Change[]) => {
        const last = changes.at(-1);
        if (last?.kind === 'DELETED') setLoaded((now) => ({ ...now, deleted: true }));
        else if (last?.row.object.metadata.resourceVersion !== seen) {
          seen = last?.row.object.metadata.resourceVersion;
          void read().catch(failed);
        }
      };
      const live = (is: boolean) =>
        setLoaded((now) => ({ ...now, brokenSince: is ? null : (now.brokenSince ?? Date.now()) }));
      const follower = { changed, lost: () => void read().catch(failed), live };
      // From the newest state on: that of the object may be older than the history of the server.
      void follow(path, params, '0', follower, abort.signal);
    }, failed);
    return () => abort.abort();
    // A failed read is repeated with the next visit, or once the server is back.
  }, [group, version, plural, namespace, name, past, returned, tried.current]); // eslint-disable-line react-hooks/exhaustive-deps
  return loaded;
}

export interface Rights {
  update: boolean;
  remove: boolean;
  scale: boolean;
  patch: boolean;
}

function useRights(known: Resource | undefined, of: Name): Rights {
  const [rights, setRights] = useState<Rights>({ update: false, remove: false, scale: false, patch: false });
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
      ask('patch', known.verbs.includes('patch')),
    ]).then(([update, remove, scale, patch]) => current && setRights({ update, remove, scale, patch }));
    return () => {
      current = false;
    };
  }, [known, namespace, name]);
  return rights;
}

/** The tabs of an object: logs, a shell and ports are of pods alone. */
function tabsOf(resource: Subject['resource'], known: Resource | undefined, past: string): Tab[] {
  const isPod = fullName(resource) === 'pods';
  return (Object.keys(TABS) as Tab[]).filter((one) => {
    if (one === 'logs' || one === 'shell' || one === 'port') return isPod && past === '';
    return one !== 'edit' || (known?.verbs.includes('update') !== false && past === '');
  });
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
  const loaded = useObject(resource, of, past, place.visit);
  const rights = useRights(known, of);
  const [asked, setAsked] = useState<Asked>(null);
  const tabs = useMemo(() => tabsOf(resource, known, past), [resource, known, past]);
  const wanted = place.params.get('tab');
  const tab: Tab = isTab(wanted) && tabs.includes(wanted) ? wanted : 'object';
  const all = lastListOf(resource) ?? listHref(resource);
  const list = lastListOf(resource) ?? listHref(resource, { ns: of.namespace });
  // Of a server that answers with another object, nothing is acted on.
  const isOther = loaded.object !== null && !isAsked(loaded.object, of);
  const isNow = past === '' && !loaded.deleted && !isOther;
  const keys = useMemo((): Key[] => {
    const open = (next: Tab) =>
      tabs.includes(next) ? () => go(withParams(place, { tab: next === 'object' ? '' : next })) : undefined;
    return bind('object', {
      u: () => go(list),
      o: open('object'),
      y: () => document.querySelector<HTMLElement>('.yaml .code')?.focus(),
      v: open('events'),
      R: open('related'),
      h: open('history'),
      O: open('owners'),
      l: open('logs'),
      S: open('shell'),
      P: open('port'),
      a: () => document.querySelector<HTMLElement>('.object .actions [aria-haspopup=menu]')?.click(),
      e: rights.update && isNow ? open('edit') : undefined,
      s: rights.scale && isNow ? () => setAsked('scale') : undefined,
      D: rights.remove && isNow ? () => setAsked('delete') : undefined,
    });
  }, [place, list, rights, tabs, isNow]);
  useKeys(keys);
  useEffect(() => {
    document.title = `${visible(name)} · ${fullName(resource)} · keelson`;
    noteRecent({ name: `${name} (${fullName(resource)})`, to: window.location.pathname });
  }, [name, resource, space]);
  const { object, error, deleted, brokenSince } = loaded;
  const subject = object === null ? null : { resource, known, of, object };
  const state = object === null ? { word: '' } : stateOf(fullName(resource), object);
  return (
    <section class="object">
      <nav class="crumbs" aria-label="Where this is">
        <a href={all}>{known === undefined ? fullName(resource) : visible(pluralOf(known.kind))}</a>
        {of.namespace !== '' && (
          <>
            <Icon name="right" size={12} />
            <a href={listHref(resource, { ns: of.namespace })}>{visible(of.namespace)}</a>
          </>
        )}
      </nav>
      <header class="heading">
        <h1 tabIndex={-1}>
          <span class="emblem">
            <Icon name={known === undefined ? 'custom' : topicOf(known)} size={20} />
          </span>
          {visible(name)} <small>{object?.kind ?? plural}</small>
          {state.word !== '' && !deleted && <Status word={state.word} tone={state.tone} />}
        </h1>
        {subject !== null && (
          <ObjectActions subject={subject} rights={rights} deleted={deleted || isOther} past={past} onAsk={setAsked} />
        )}
      </header>
      {deleted && (
        <p class="notice" role="status">
          {past === '' ? 'This object was deleted. What is shown is its last state.' : 'There was no such object then.'}
        </p>
      )}
      {isOther && (
        <p class="problem" role="alert">
          The server that has these objects answered with another one: {visible(nameIn(object))}. What is shown is not{' '}
          {visible(name)}, and can&apos;t be changed here.
        </p>
      )}
      {past !== '' && (
        <p class="notice">
          As it was at revision {visible(past)}. <a href={withParams(place, { rv: '' })}>Show it as it is now</a>
        </p>
      )}
      {brokenSince !== null && past === '' && !deleted && (
        <p class="not-live" role="status">
          <Icon name="warn" /> Not live since {clock(brokenSince)}
        </p>
      )}
      {error !== null && !deleted && (
        <Problem error={error}>{hasCode(error, 404) && <a href={list}>To the list</a>}</Problem>
      )}
      {object === null && error === null && !deleted && <p class="loading">Loading…</p>}
      {subject !== null && (
        <>
          <Tabs place={place} tab={tab} all={tabs} />
          <div class="tab" role="tabpanel" id="tabpanel" aria-labelledby={`tab-${tab}`}>
            <TabPage tab={tab} subject={subject} place={place} mayUpdate={rights.update && !isOther} />
          </div>
        </>
      )}
      {asked === 'scale' && subject !== null && <ScaleDialog subject={subject} onClose={() => setAsked(null)} />}
      {asked === 'delete' && subject !== null && (
        <DeleteDialog
          subject={subject}
          onClose={() => setAsked(null)}
          onDone={() => {
            announce(`${name} is deleted`);
            unguard();
            go(list);
          }}
        />
      )}
      {asked !== null && typeof asked === 'object' && subject !== null && (
        <ActionDialog subject={subject} action={asked} onClose={() => setAsked(null)} />
      )}
    </section>
  );
}

/** What an object says it is. */
function nameIn(object: KubeObject | null): string {
  const { namespace, name } = (object?.metadata ?? {}) as Record<string, unknown>;
  return [text(namespace), text(name)].filter((one) => one !== '').join('/') || 'one without a name';
}

function Tabs({ place, tab, all }: { place: Place; tab: Tab; all: Tab[] }) {
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
        <div class="beside">
          <Overview subject={subject} />
          <YamlView value={plain} isSecret={fullName(subject.resource) === 'secrets'} />
        </div>
      );
    case 'logs':
      return <Logs subject={subject} place={place} />;
    case 'shell':
      return <Shell subject={subject} />;
    case 'port':
      return <PortPage subject={subject} />;
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
