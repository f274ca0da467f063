// The switcher of namespaces: it stays over all pages, remembers, takes several, and completes what is typed.

import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { getJson, hasCode, isAborted, METADATA_LIST } from '../api/client';
import { findResource, discovery } from '../api/discovery';
import { session } from '../api/session';
import type { ObjectList } from '../api/types';
import { groupOf } from '../lib/links';
import { visible } from '../lib/visible';
import { namespacesOf } from '../pages/list/query';
import { choices, chooseNamespaces } from '../state/choices';
import { go, place, withParams } from '../state/router';
import { store, useStore } from '../state/store';
import { Icon } from './icon';

/** How many namespaces are read at once; of more, those that fit the text are asked of the server. */
const READ = 500;
const SHOWN = 200;

/** Whether the switcher is open; a key opens it too. */
export const switcher = store(false);

interface Known {
  names: string[];
  /** Whether there are more than were read. */
  more: boolean;
  /** Why they can't be listed. */
  why: string;
}

async function known(text: string, signal: AbortSignal): Promise<Known> {
  const search = new URLSearchParams({ limit: String(READ) });
  if (text !== '') search.set('keelson.io/search', text);
  try {
    const path = `/api/v1/namespaces?${search.toString()}`;
    const list = await getJson<ObjectList>(path, { accept: METADATA_LIST, signal });
    const names = list.items.map(({ metadata }) => metadata.name);
    return { names, more: (list.metadata.continue ?? '') !== '', why: '' };
  } catch (error) {
    if (isAborted(error)) throw error;
    const why = hasCode(error, 403)
      ? 'You may not list namespaces. Type the name of yours.'
      : 'They can not be read now.';
    return { names: [], more: false, why };
  }
}

/** Those that begin with the text come first, then those that hold it. */
function fitting(names: string[], text: string): string[] {
  const begin = names.filter((one) => one.startsWith(text));
  return [...begin, ...names.filter((one) => !one.startsWith(text) && one.includes(text))].slice(0, SHOWN);
}

/** Shows the chosen namespaces on the page that is open, and on all that are opened later. */
export function showNamespaces(namespaces: string[]): void {
  chooseNamespaces(namespaces);
  const here = place.get();
  const [kind, group = '', version = '', plural = '', , name] = here.path;
  if (kind !== 'r' || name !== undefined) return;
  const resource = findResource(discovery.get().resources, groupOf(group), version, plural);
  if (resource?.namespaced === false) return;
  go(withParams(here, { ns: namespaces.join(','), page: '' }));
}

/** The namespaces that pages are about: those of the address of a list, or those that were chosen. */
export function useNamespaces(): string[] {
  const { namespaces } = useStore(choices);
  return namespaces;
}

export function NamespaceSwitcher() {
  const namespaces = useNamespaces();
  const open = useStore(switcher);
  const root = useRef<HTMLDivElement>(null);
  const label = namespaces.length === 0 ? 'All namespaces' : namespaces.length === 1 ? namespaces[0] : undefined;
  useEffect(() => {
    if (!open) return;
    const outside = (event: Event) => {
      if (event.target instanceof Node && root.current?.contains(event.target) !== true) switcher.set(false);
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [open]);
  return (
    <div class="switcher" ref={root}>
      <button
        type="button"
        aria-haspopup="dialog"
        aria-expanded={open}
        aria-keyshortcuts="N"
        title="Namespaces ( N )"
        onClick={() => switcher.set(!open)}
      >
        <span class="what">Namespace</span>
        <span class="chosen">{visible(label ?? `${namespaces.length} namespaces`)}</span>
        <Icon name="down" />
      </button>
      {open && <Chooser chosen={namespaces} onClose={() => switcher.set(false)} />}
    </div>
  );
}

function Chooser({ chosen, onClose }: { chosen: string[]; onClose: () => void }) {
  const { recentNamespaces } = useStore(choices);
  const [text, setText] = useState('');
  const [at, setAt] = useState(-1);
  const [found, setFound] = useState<Known | null>(null);
  const [asked, setAsked] = useState('');
  const reading = useRef<Promise<Known> | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  const typed = text.trim();
  // Before the next key, which belongs to the field.
  useLayoutEffect(() => {
    const before = document.activeElement;
    input.current?.focus();
    return () => {
      if (before instanceof HTMLElement && before !== document.body) before.focus();
    };
  }, []);
  useEffect(() => {
    const abort = new AbortController();
    const read = known(asked, abort.signal);
    reading.current = read;
    read.then(setFound, () => undefined);
    return () => abort.abort();
  }, [asked]);
  // Only where there are more than were read, the server is asked for each text.
  const more = found?.more === true || asked !== '';
  useEffect(() => {
    if (!more) return;
    const timer = setTimeout(() => setAsked(typed), 120);
    return () => clearTimeout(timer);
  }, [typed, more]);
  const shown = useMemo(() => {
    const names = found === null ? [] : found.names;
    const all = [...new Set([...chosen, ...recentNamespaces, ...[...names].sort()])];
    return fitting(all, typed);
  }, [found, chosen, recentNamespaces, typed]);

  const only = (name: string) => {
    onClose();
    showNamespaces(name === '' ? [] : [name]);
  };
  const toggle = (name: string) =>
    showNamespaces(chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name]);
  /** The name that Enter takes: the chosen row, else the text as it is, else what begins with it. */
  const enter = async () => {
    // Letters may have come since the last time that this was rendered.
    const wanted = input.current?.value.trim() ?? typed;
    const row = wanted === typed ? shown[at] : undefined;
    if (row !== undefined) return only(row);
    if (wanted === '') return only('');
    const { names } = (await reading.current?.catch(() => null)) ?? { names: [] };
    const known = [...recentNamespaces, ...names];
    only(known.includes(wanted) ? wanted : (fitting(known, wanted)[0] ?? wanted));
  };
  const pressed = (event: KeyboardEvent) => {
    const row = shown[at];
    if (event.key === 'ArrowDown') setAt(Math.min(at + 1, shown.length - 1));
    else if (event.key === 'ArrowUp') setAt(Math.max(at - 1, -1));
    else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && row !== undefined) toggle(row);
    else if (event.key === 'Enter') void enter();
    else if (event.key === 'Escape') onClose();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="chooser" role="dialog" aria-label="Namespaces" onKeyDown={pressed}>
      <input
        ref={input}
        type="text"
        role="combobox"
        aria-label="Namespace"
        aria-expanded={true}
        aria-controls={id}
        aria-activedescendant={at >= 0 ? `${id}-${at}` : undefined}
        placeholder="Name…"
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(-1);
        }}
      />
      <button type="button" class={`all${chosen.length === 0 ? ' is-chosen' : ''}`} onClick={() => only('')}>
        All namespaces
      </button>
      {found !== null && found.why !== '' && <p class="muted">{found.why}</p>}
      <ul id={id} role="listbox" aria-multiselectable="true" aria-label="Namespaces">
        {shown.map((name, place) => (
          <li
            key={name}
            id={`${id}-${place}`}
            role="option"
            aria-selected={chosen.includes(name)}
            class={place === at ? 'is-at' : ''}
            onClick={(event) => {
              const isMark = event.target instanceof Element && event.target.closest('.mark') !== null;
              if (isMark || event.ctrlKey || event.metaKey) toggle(name);
              else only(name);
            }}
          >
            <span class="mark" title="Add to what is shown">
              {chosen.includes(name) && <Icon name="check" size={12} />}
            </span>
            {visible(name)}
          </li>
        ))}
      </ul>
      <p class="hint">
        <kbd>Enter</kbd> shows one, <kbd>Ctrl</kbd> <kbd>Enter</kbd> or the box adds it.
      </p>
    </div>
  );
}

/** Keeps the choice to the address of the list that is open. */
export function useChosenNamespaces(params: URLSearchParams, namespaced: boolean | undefined): void {
  const text = namespacesOf(params).join(',');
  useEffect(() => {
    if (namespaced !== true) return;
    if (choices.get().namespaces.join(',') !== text || session.get().user === null) {
      chooseNamespaces(text === '' ? [] : text.split(','));
    }
  }, [text, namespaced]);
}
