// The page of kept views: those of this browser, and those in config maps. A link of a view leads to its list.

import { useEffect, useState } from 'preact/hooks';
import { ApiError, told } from '../api/client';
import { removeShared, sharedView, type SharedView } from '../api/views';
import { visible } from '../lib/visible';
import { choices, choose, type Link } from '../state/choices';
import { go, type Place } from '../state/router';
import { useStore } from '../state/store';
import { linkOf, readShared, shared } from '../state/views';
import { announce } from '../ui/announce';
import { copy } from '../ui/copy';
import { Icon } from '../ui/icon';
import { useNamespaces } from '../ui/namespaces';
import { Problem } from '../ui/problem';

export function ViewsPage({ place }: { place: Place }) {
  const [, namespace, map, key] = place.path;
  if (namespace !== undefined && map !== undefined && key !== undefined) {
    return <Linked namespace={namespace} map={map} view={key} />;
  }
  return <All />;
}

/** Goes on to the list of a view. */
function Linked({ namespace, map, view }: { namespace: string; map: string; view: string }) {
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    let current = true;
    document.title = 'View · keelson';
    sharedView(namespace, map, view)
      .then((found) => {
        if (!current) return;
        if (found === null) setError(new ApiError(404, null, 'This config map has no such view.'));
        else go(found.to, { replace: true });
      })
      .catch((failed: unknown) => current && setError(failed));
    return () => {
      current = false;
    };
  }, [namespace, map, view]);
  return (
    <section>
      <h1 tabIndex={-1}>View</h1>
      {error === null ? <p class="loading">Loading…</p> : <Problem error={error} />}
    </section>
  );
}

function All() {
  const namespaces = useNamespaces();
  const { views, favourites } = useStore(choices);
  const others = useStore(shared);
  useEffect(() => {
    document.title = 'Views · keelson';
    const abort = new AbortController();
    void readShared(abort.signal);
    return () => abort.abort();
  }, [namespaces]);
  const drop = (list: 'views' | 'favourites', link: Link) =>
    choose((now) => ({ [list]: now[list].filter((one) => one.to !== link.to || one.name !== link.name) }));
  const remove = async (view: SharedView) => {
    try {
      await removeShared(view);
      announce(`${view.name} is removed`);
      await readShared();
    } catch (error) {
      announce(told(error), 'failed');
    }
  };
  const isEmpty = views.length + favourites.length + others.length === 0;
  return (
    <section class="views-page">
      <h1 tabIndex={-1}>Views</h1>
      {isEmpty && (
        <div class="panel empty">
          <p>
            No views are kept. A list keeps its filters, order and columns under <b>More</b>, <b>Keep this view…</b>
          </p>
        </div>
      )}
      {others.length > 0 && (
        <section class="panel">
          <h2>In config maps</h2>
          <ul class="views">
            {others.map((one) => (
              <li key={`${one.namespace}/${one.map}/${one.key}`}>
                <a href={one.to}>
                  <Icon name="star" size={14} /> {visible(one.name)}
                </a>
                <small>
                  {visible(one.namespace)}, {visible(one.map)}
                </small>
                <button
                  type="button"
                  aria-label={`Copy the link of ${visible(one.name)}`}
                  onClick={() => copy(window.location.origin + linkOf(one), 'The link')}
                >
                  <Icon name="copy" /> Link
                </button>
                <button
                  type="button"
                  class="quiet"
                  aria-label={`Remove ${visible(one.name)}`}
                  title="Remove"
                  onClick={() => void remove(one)}
                >
                  <Icon name="cross" />
                </button>
              </li>
            ))}
          </ul>
        </section>
      )}
      <Own title="In this browser" links={views} onRemove={(one) => drop('views', one)} />
      <Own title="Favourites" links={favourites} onRemove={(one) => drop('favourites', one)} />
    </section>
  );
}

function Own({ title, links, onRemove }: { title: string; links: Link[]; onRemove: (link: Link) => void }) {
  if (links.length === 0) return null;
  return (
    <section class="panel">
      <h2>{title}</h2>
      <ul class="views">
        {links.map((one) => (
          <li key={`${one.name} ${one.to}`}>
            <a href={one.to}>
              <Icon name="star" size={14} /> {visible(one.name)}
            </a>
            <small>{visible(decodedAddress(one.to))}</small>
            <button
              type="button"
              class="quiet"
              aria-label={`Remove ${visible(one.name)}`}
              title="Remove"
              onClick={() => onRemove(one)}
            >
              <Icon name="cross" />
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function decodedAddress(to: string): string {
  const short = to.replace('/console/r/', '');
  try {
    return decodeURIComponent(short.replaceAll('+', ' '));
  } catch {
    return short;
  }
}
