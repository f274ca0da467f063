// The menu: favourites, and the resources that the user may list by topic, with a field that filters them.

import { Fragment } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { allows } from '../api/access';
import { discovery, type Resource } from '../api/discovery';
import { byTopic, pluralOf, TOPICS, type Topic } from '../lib/kinds';
import { groupOf, resourceHref } from '../lib/links';
import { visible } from '../lib/visible';
import { choices } from '../state/choices';
import { href, place } from '../state/router';
import { useStore } from '../state/store';
import { Icon } from './icon';
import { useNamespaces } from './namespaces';
import { Problem } from './problem';
import { useRules } from './rules';

/** Topics that are open at first. */
const OPEN: Topic[] = ['workloads', 'network', 'configuration'];

function fits(one: Resource, text: string): boolean {
  const names = [one.plural, one.group, one.kind.toLowerCase(), ...one.shortNames];
  return text === '' || names.some((name) => name.includes(text));
}

/** A name of several words that can be broken between them. */
function breakable(name: string) {
  return name.split(/(?<=[a-z])(?=[A-Z])/).map((word, at) => (
    <Fragment key={at}>
      {at > 0 && <wbr />}
      {word}
    </Fragment>
  ));
}

export function Sidebar({ onGo }: { onGo: () => void }) {
  const { resources, error } = useStore(discovery);
  const { favourites } = useStore(choices);
  const here = useStore(place);
  const namespaces = useNamespaces();
  const [all, setAll] = useState(false);
  const [text, setText] = useState('');
  const rules = useRules(namespaces[0] ?? '');
  const listed = useMemo(() => resources.filter((one) => one.preferred && one.verbs.includes('list')), [resources]);
  const permitted = useMemo(
    () => listed.filter((one) => rules === null || allows(rules, 'list', one)),
    [listed, rules],
  );
  const wanted = text.trim().toLowerCase();
  const topics = useMemo(
    () => byTopic((all ? listed : permitted).filter((one) => fits(one, wanted))),
    [all, listed, permitted, wanted],
  );
  const [kind, group = '', version, plural] = here.path;
  const isHere = (one: Resource) =>
    kind === 'r' && one.group === groupOf(group) && one.plural === plural && one.version === version;
  return (
    <nav class="sidebar" aria-label="Resources">
      <a class="item home-link" href={href([])} aria-current={kind === undefined ? 'page' : undefined} onClick={onGo}>
        <Icon name="home" /> Overview
      </a>
      {favourites.length > 0 && (
        <details open>
          <summary>
            <Icon name="star" /> Favourites
          </summary>
          <ul>
            {favourites.map((one) => (
              <li key={one.to}>
                <a class="item" href={one.to} onClick={onGo}>
                  {visible(one.name)}
                </a>
              </li>
            ))}
          </ul>
        </details>
      )}
      <label class="narrow">
        <Icon name="filter" size={14} />
        <input
          type="search"
          aria-label="Filter the menu"
          placeholder="Filter kinds"
          spellcheck={false}
          autocomplete="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      {error !== null && resources.length === 0 && <Problem error={error} />}
      {TOPICS.map(([topic, title]) => {
        const members = topics.get(topic) ?? [];
        if (members.length === 0) return null;
        return (
          <details key={topic} open={wanted !== '' || OPEN.includes(topic) || members.some(isHere)}>
            <summary>
              <Icon name={topic} /> {title}
            </summary>
            <ul>
              {members.map((one) => (
                <li key={`${one.group}/${one.plural}`}>
                  <a
                    class="item"
                    href={resourceHref(one)}
                    title={one.group === '' ? one.plural : `${one.plural}.${one.group}`}
                    aria-current={isHere(one) ? 'page' : undefined}
                    onClick={onGo}
                  >
                    <span>{breakable(visible(pluralOf(one.kind)))}</span>
                    {topic === 'custom' && <small>{visible(one.group)}</small>}
                    {one.stale && <small title="The server that has them is away"> ⚠</small>}
                  </a>
                </li>
              ))}
            </ul>
          </details>
        );
      })}
      {permitted.length < listed.length && (
        <button type="button" class="quiet" aria-pressed={all} onClick={() => setAll(!all)}>
          {all ? 'Show what I may list' : `Show ${listed.length - permitted.length} more that I may not list`}
        </button>
      )}
      <ul class="foot">
        <li>
          <a class="item" href={href(['who'])} aria-current={kind === 'who' ? 'page' : undefined} onClick={onGo}>
            <Icon name="access" /> Who may
          </a>
        </li>
        <li>
          <a class="item" href={href(['views'])} aria-current={kind === 'views' ? 'page' : undefined} onClick={onGo}>
            <Icon name="star" /> Views
          </a>
        </li>
        <li>
          <a
            class="item"
            href={href(['storage'])}
            aria-current={kind === 'storage' ? 'page' : undefined}
            onClick={onGo}
          >
            <Icon name="storage" /> Storage versions
          </a>
        </li>
        <li>
          <a class="item" href={href(['server'])} aria-current={kind === 'server' ? 'page' : undefined} onClick={onGo}>
            <Icon name="server" /> Server
          </a>
        </li>
        <li>
          <a class="item" href={href(['keys'])} aria-current={kind === 'keys' ? 'page' : undefined} onClick={onGo}>
            <Icon name="keys" /> Keys
          </a>
        </li>
      </ul>
    </nav>
  );
}
