// Goes anywhere by a few letters: objects of all kinds, resources, pages that were open, and actions.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { discovery, fullName, type Resource } from '../api/discovery';
import { type Found, type FoundCount, type FoundObject, searchObjects, SIMILAR } from '../api/search';
import { pluralOf, topicOf } from '../lib/kinds';
import { listHref, objectHref, resourceHref } from '../lib/links';
import { counted } from '../lib/time';
import { visible } from '../lib/visible';
import { choices } from '../state/choices';
import { go } from '../state/router';
import { useStore } from '../state/store';
import { readShared, shared } from '../state/views';
import { Dialog } from './dialog';
import { Icon, type IconName } from './icon';

/** How many entries of each part are shown. */
const RESOURCES = 6;
const OBJECTS = 14;
const RECENT = 6;
/** From how many letters on objects are searched, and how long the typing rests before, in milliseconds. */
const SEARCHED_FROM = 2;
const REST = 90;

export interface PaletteAction {
  text: string;
  icon: IconName;
  keys?: string;
  run: () => void;
}

interface Entry {
  id: string;
  part: string;
  icon: IconName;
  text: string;
  detail: string;
  keys?: string | undefined;
  run: () => void;
}

/** How well a resource fits what was typed; 0 where it does not. */
function fit(resource: Resource, text: string): number {
  const name = fullName(resource);
  if (resource.shortNames.includes(text)) return 6;
  if (resource.plural === text) return 5;
  if (resource.plural.startsWith(text)) return 4;
  if (name.includes(text) || resource.kind.toLowerCase().includes(text)) return 2;
  let at = 0;
  for (const letter of name) if (letter === text[at]) at += 1;
  return at === text.length ? 1 : 0;
}

function resourcesFor(resources: Resource[], text: string): Resource[] {
  const listed = resources.filter((one) => one.verbs.includes('list'));
  const rated = listed.map((one) => ({ one, rate: fit(one, text) * 10 + (one.preferred ? 5 : 0) }));
  return rated
    .filter(({ rate }) => rate >= 10)
    .sort((a, b) => b.rate - a.rate || a.one.plural.length - b.one.plural.length)
    .slice(0, RESOURCES)
    .map(({ one }) => one);
}

interface Search {
  objects: FoundObject[];
  counts: FoundCount[];
  busy: boolean;
}

const NO_OBJECTS: Search = { objects: [], counts: [], busy: false };
/** How many kinds with more objects than are shown are offered as lists. */
const LISTS = 4;

/** The namespaces that the user is known to work in. */
function usualNamespaces(): string[] {
  const { namespaces, recentNamespaces } = choices.get();
  return [...new Set([...namespaces, ...recentNamespaces])];
}

function useObjects(text: string): Search {
  const { resources } = useStore(discovery);
  const [search, setSearch] = useState<Search>(NO_OBJECTS);
  useEffect(() => {
    if (text.length < SEARCHED_FROM) {
      setSearch(NO_OBJECTS);
      return;
    }
    const abort = new AbortController();
    setSearch((now) => ({ ...now, busy: true }));
    let isFirst = true;
    const timer = setTimeout(() => {
      const found = ({ objects, counts }: Found) => {
        const before = isFirst;
        isFirst = false;
        setSearch((now) => ({
          busy: true,
          objects: [...(before ? [] : now.objects), ...objects],
          counts: [...(before ? [] : now.counts), ...counts],
        }));
      };
      void searchObjects(resources, usualNamespaces(), text, found, abort.signal)
        .catch(() => undefined)
        .then(() => {
          if (abort.signal.aborted) return;
          setSearch((now) => (isFirst ? NO_OBJECTS : { ...now, busy: false }));
        });
    }, REST);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, resources]);
  return search;
}

export function Palette({ actions, onClose }: { actions: PaletteAction[]; onClose: () => void }) {
  const { resources } = useStore(discovery);
  const { recent, favourites, views } = useStore(choices);
  const others = useStore(shared);
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const wanted = text.trim().toLowerCase();
  const { objects, counts, busy } = useObjects(wanted);
  const entries = useMemo((): Entry[] => {
    const includes = (name: string) => name.toLowerCase().includes(wanted);
    const link = (part: string, icon: IconName) => (one: { name: string; to: string }) => ({
      id: `${part} ${one.to}`,
      part,
      icon,
      text: visible(one.name),
      detail: '',
      run: () => go(one.to),
    });
    const ofResources = resourcesFor(resources, wanted).map((one) => ({
      id: `resource ${fullName(one)}/${one.version}`,
      part: 'Resources',
      icon: topicOf(one),
      text: visible(pluralOf(one.kind)),
      detail: [one.group === '' ? one.version : `${one.group}/${one.version}`, ...one.shortNames].join('  '),
      run: () => go(resourceHref(one)),
    }));
    const rated = [...objects].sort((a, b) => b.rate - a.rate || a.name.length - b.name.length);
    // Names that are only similar are shown where none fits.
    const exact = rated.filter(({ rate }) => rate > SIMILAR);
    const best = (exact.length > 0 ? exact : rated).slice(0, OBJECTS);
    const ofObjects = best.map((one) => ({
      id: `object ${fullName(one.resource)}/${one.namespace}/${one.name}`,
      part: 'Objects',
      icon: topicOf(one.resource),
      text: visible(one.name),
      detail: one.namespace === '' ? one.resource.kind : `${one.resource.kind} in ${one.namespace}`,
      run: () => go(objectHref(one.resource, one.namespace, one.name)),
    }));
    // All objects of a kind that fit, where more fit than are shown.
    const more = counts
      .filter(({ resource, count }) => count > best.filter((one) => one.resource === resource).length)
      .slice(0, LISTS);
    const ofLists = more.map(({ resource, namespace, count }) => ({
      id: `all ${fullName(resource)}/${namespace}`,
      part: 'All of a kind',
      icon: topicOf(resource),
      text: `${counted(count)} ${visible(pluralOf(resource.kind))}`,
      detail: namespace === '' ? `with ${wanted}` : `with ${wanted} in ${namespace}`,
      run: () => go(listHref(resource, { q: wanted, ns: namespace })),
    }));
    const ofActions = actions
      .filter((one) => wanted === '' || includes(one.text))
      .map((one) => ({ ...one, id: `action ${one.text}`, part: 'Actions', detail: '' }));
    const marked = [...favourites, ...views, ...others]
      .filter((one) => includes(one.name))
      .map(link('Favourites and views', 'star'));
    if (wanted === '') {
      return [...recent.slice(0, RECENT).map(link('Recent', 'clock')), ...marked, ...ofResources, ...ofActions];
    }
    // The short name of a resource means it and no object.
    const first = ofResources.some((_, at) => fit(resourcesFor(resources, wanted)[at] as Resource, wanted) >= 4);
    return [
      ...(first ? [...ofResources, ...ofObjects] : [...ofObjects, ...ofResources]),
      ...ofLists,
      ...marked,
      ...ofActions,
    ];
  }, [resources, objects, counts, wanted, recent, favourites, views, others, actions]);
  useEffect(() => {
    const abort = new AbortController();
    void readShared(abort.signal);
    return () => abort.abort();
  }, []);
  const at = Math.min(chosen, entries.length - 1);
  const open = (entry: Entry | undefined) => {
    if (entry === undefined) return;
    onClose();
    entry.run();
  };
  useEffect(() => {
    document.getElementById(`palette-${at}`)?.scrollIntoView({ block: 'nearest' });
  }, [at]);
  return (
    <Dialog title="Search and go to" class="palette-dialog" onClose={onClose}>
      <div class="palette-field">
        <Icon name="search" />
        <input
          type="text"
          role="combobox"
          aria-label="Search objects, resources and actions"
          aria-expanded={true}
          aria-controls="palette"
          aria-activedescendant={entries.length > 0 ? `palette-${at}` : undefined}
          placeholder="Name of an object, pods, deploy, create…"
          spellcheck={false}
          autocomplete="off"
          autofocus
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setChosen(0);
          }}
          onKeyDown={(event) => {
            if (event.key === 'ArrowDown') setChosen(Math.min(at + 1, entries.length - 1));
            else if (event.key === 'ArrowUp') setChosen(Math.max(at - 1, 0));
            else if (event.key === 'Enter') open(entries[at]);
            else return;
            event.preventDefault();
          }}
        />
        {busy && <span class="spinner" role="status" aria-label="Searching" />}
      </div>
      <ul id="palette" class="palette" role="listbox" aria-label="Results">
        {entries.map((one, place) => (
          <li
            key={one.id}
            id={`palette-${place}`}
            role="option"
            aria-selected={place === at}
            class={one.part === entries[place - 1]?.part ? '' : 'begins'}
            data-part={one.part}
            onClick={() => open(one)}
          >
            <Icon name={one.icon} />
            <span class="name">{one.text}</span>
            <small>{visible(one.detail)}</small>
            {one.keys !== undefined && <kbd>{one.keys}</kbd>}
          </li>
        ))}
      </ul>
      {entries.length === 0 && !busy && <p class="muted">Nothing is found.</p>}
    </Dialog>
  );
}
