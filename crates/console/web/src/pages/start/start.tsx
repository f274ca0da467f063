// The first page: the health of the cluster, where each number leads to its list, and the user's own views.

import { useEffect, useMemo } from 'preact/hooks';
import { allows } from '../../api/access';
import { discovery } from '../../api/discovery';
import { byTopic, pluralOf } from '../../lib/kinds';
import { resourceHref } from '../../lib/links';
import { counted } from '../../lib/time';
import { visible } from '../../lib/visible';
import { choices, type Link } from '../../state/choices';
import { useStore } from '../../state/store';
import { readShared, shared } from '../../state/views';
import { Icon } from '../../ui/icon';
import { switcher, useNamespaces } from '../../ui/namespaces';
import { useRules } from '../../ui/rules';
import { ObjectLink } from '../object/overview/blocks';
import { type Counted, useHealth } from './health';

const RECENT = 8;

/** A title as it is after a number: `failing pods`, and `API services away` as it is. */
function inSentence(title: string): string {
  return /^[A-Z][a-z]/.test(title) ? title.charAt(0).toLowerCase() + title.slice(1) : title;
}

function Tile({ of }: { of: Counted }) {
  const tone = of.count === 0 || of.tone === 'plain' ? 'good' : of.tone;
  return (
    <li>
      <a class={`tile is-${of.tone === 'plain' ? 'plain' : tone}`} href={of.to}>
        <strong>{counted(of.count)}</strong>
        <span>{of.title}</span>
      </a>
    </li>
  );
}

function Links({ title, links, icon }: { title: string; links: Link[]; icon: 'star' | 'clock' }) {
  if (links.length === 0) return null;
  return (
    <section class="panel">
      <header>
        <h2>{title}</h2>
      </header>
      <ul class="links">
        {links.map((one) => (
          <li key={one.to}>
            <a href={one.to}>
              <Icon name={icon} size={14} /> {visible(one.name)}
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function HomePage() {
  const namespaces = useNamespaces();
  const health = useHealth(namespaces);
  const { resources: all } = useStore(discovery);
  const { recent, favourites, views } = useStore(choices);
  const rules = useRules(namespaces[0] ?? '');
  const custom = useMemo(() => {
    const listed = all.filter((one) => one.preferred && one.verbs.includes('list'));
    const permitted = listed.filter((one) => rules === null || rules.incomplete || allows(rules, 'list', one));
    return { any: permitted.length > 0, kinds: byTopic(permitted).get('custom') ?? [] };
  }, [all, rules]);
  const others = useStore(shared);
  useEffect(() => {
    document.title = 'Overview · keelson';
  }, []);
  useEffect(() => {
    const abort = new AbortController();
    void readShared(abort.signal);
    return () => abort.abort();
  }, [namespaces]);
  const failing = health.ready?.filter(({ well }) => !well) ?? [];
  const bad = health.figures.filter((one) => one.count > 0);
  const calm = health.figures.filter((one) => one.count === 0);
  return (
    <section class="home">
      <header class="heading">
        <h1 tabIndex={-1}>
          Overview{' '}
          <small>
            {window.location.host} {visible(health.version)}
          </small>
        </h1>
        {health.ready !== null && (
          <p class={`readiness is-${failing.length === 0 ? 'good' : 'bad'}`} role="status">
            <Icon name={failing.length === 0 ? 'check' : 'warn'} />
            {failing.length === 0
              ? `Ready, ${health.ready.length} checks pass`
              : `Not ready: ${failing.map(({ name }) => name).join(', ')}`}
          </p>
        )}
      </header>
      {rules !== null && all.length > 0 && !custom.any && (
        <p class="notice">
          You may list nothing in {namespaces.length === 0 ? 'all namespaces at once' : namespaces.join(', ')}.{' '}
          <button type="button" class="quiet" onClick={() => switcher.set(true)}>
            Choose your namespace
          </button>
        </p>
      )}
      {health.sizes.length > 0 && (
        <ul class="tiles sizes" aria-label="Sizes">
          {health.sizes.map((one) => (
            <Tile key={one.title} of={one} />
          ))}
        </ul>
      )}
      {health.figures.length > 0 && (
        <section aria-label="Health">
          <h2>{bad.length === 0 ? 'Nothing asks for attention' : 'Asks for attention'}</h2>
          {bad.length > 0 && (
            <ul class="tiles" id="attention">
              {bad.map((one) => (
                <Tile key={one.title} of={one} />
              ))}
            </ul>
          )}
          {calm.length > 0 && (
            <ul class="calm">
              {calm.map((one) => (
                <li key={one.title}>
                  <a href={one.to}>
                    <Icon name="check" size={14} /> <b>0</b> {inSentence(one.title)}
                  </a>
                </li>
              ))}
            </ul>
          )}
        </section>
      )}
      <div class="home-panels">
        {health.warnings.length > 0 && (
          <section class="panel">
            <header>
              <h2>Warnings of the last hour</h2>
            </header>
            <ul class="bars">
              {health.warnings.map((one) => (
                <li key={one.reason}>
                  <a href={one.to}>
                    <span class="bar" style={{ width: `${(100 * one.count) / (health.warnings[0]?.count ?? 1)}%` }} />
                    <span class="name">{visible(one.reason)}</span>
                    <span class="count">{counted(one.count)}</span>
                  </a>
                </li>
              ))}
            </ul>
          </section>
        )}
        {health.quotas.length > 0 && (
          <section class="panel">
            <header>
              <h2>Quotas near their limit</h2>
            </header>
            <ul class="bars">
              {health.quotas.map((one) => (
                <li key={`${one.namespace}/${one.name}/${one.resource}`}>
                  <ObjectLink group="" plural="resourcequotas" namespace={one.namespace} name={one.name}>
                    <span class="bar is-warn" style={{ width: `${Math.min(100, 100 * one.share)}%` }} />
                    <span class="name">{visible(`${one.namespace}: ${one.resource}`)}</span>
                    <span class="count">{visible(`${one.used} of ${one.hard}`)}</span>
                  </ObjectLink>
                </li>
              ))}
            </ul>
          </section>
        )}
        <Links title="Favourites and views" links={[...favourites, ...views, ...others]} icon="star" />
        <Links title="Recent" links={recent.slice(0, RECENT)} icon="clock" />
        {custom.kinds.length > 0 && (
          <section class="panel">
            <header>
              <h2>Custom resources</h2>
            </header>
            <ul class="links">
              {custom.kinds.map((one) => (
                <li key={`${one.group}/${one.plural}`}>
                  <a href={resourceHref(one)}>
                    <Icon name="custom" size={14} /> {visible(pluralOf(one.kind))} <small>{visible(one.group)}</small>
                  </a>
                </li>
              ))}
            </ul>
          </section>
        )}
      </div>
      <p class="muted hint">
        Press <kbd>:</kbd> to search objects and go anywhere, <kbd>?</kbd> for all keys.
      </p>
    </section>
  );
}
