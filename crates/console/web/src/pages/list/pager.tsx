// The bar below a list: the position of the page, and links to all pages of the same snapshot.

import { useEffect, useState } from 'preact/hooks';
import type { ListQuery, Page } from '../../api/lists';
import { counted } from '../../lib/time';
import { go, type Place, withParams } from '../../state/router';
import { PAGE_SIZES } from './query';

export function pageCount(page: Page, query: ListQuery): number {
  return Math.max(1, Math.ceil((page.total ?? 0) / query.limit));
}

/** Goes to a page of the snapshot that is shown. */
export function toPage(place: Place, number: number): void {
  const { snapshot } = place.state;
  go(withParams(place, { page: number === 1 ? '' : String(number) }), { state: { snapshot } });
}

export function Pager(props: { place: Place; query: ListQuery; page: Page }) {
  const { place, query, page } = props;
  const last = pageCount(page, query);
  const first = (query.page - 1) * query.limit + 1;
  const until = first + page.rows.length - 1;
  const [text, setText] = useState(String(query.page));
  useEffect(() => setText(String(query.page)), [query.page]);
  const jump = () => {
    const number = Number(text);
    if (Number.isInteger(number) && number >= 1) toPage(place, Math.min(number, last));
    else setText(String(query.page));
  };
  return (
    <nav class="pager" aria-label="Pages">
      <p class="of" data-total={page.total}>
        {page.rows.length === 0 ? 'None' : `${counted(first)}–${counted(until)}`}
        {page.total !== undefined && ` of ${counted(page.total)}`}
      </p>
      {page.extended || page.isDivided ? (
        <div class="pages">
          <Step label="First page" text="«" to={1} at={query.page} last={last} place={place} />
          <Step label="Previous page" text="‹" to={query.page - 1} at={query.page} last={last} place={place} />
          <form
            onSubmit={(event) => {
              event.preventDefault();
              jump();
              // Keys apply to the list again.
              if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
            }}
          >
            <label>
              Page{' '}
              <input
                inputMode="numeric"
                data-shortcut="#"
                aria-label="Page number"
                value={text}
                onInput={(event) => setText(event.currentTarget.value)}
                onBlur={() => setText(String(query.page))}
              />
            </label>{' '}
            of {counted(last)}
          </form>
          <Step label="Next page" text="›" to={query.page + 1} at={query.page} last={last} place={place} />
          <Step label="Last page" text="»" to={last} at={query.page} last={last} place={place} />
        </div>
      ) : (
        page.token !== '' && (
          <button
            type="button"
            onClick={() => go(withParams(place, {}), { state: { ...place.state, token: page.token } })}
          >
            Next page
          </button>
        )
      )}
      <label class="size">
        <span>per page</span>
        <select
          value={String(query.limit)}
          onChange={(event) => {
            const limit = Number(event.currentTarget.value);
            const number = Math.floor((first - 1) / limit) + 1;
            const changes = { limit: String(limit), page: number === 1 ? '' : String(number) };
            go(withParams(place, changes), { state: { snapshot: place.state.snapshot } });
          }}
        >
          {[...new Set([...PAGE_SIZES, query.limit])]
            .sort((a, b) => a - b)
            .map((size) => (
              <option key={size} value={String(size)}>
                {size}
              </option>
            ))}
        </select>
      </label>
    </nav>
  );
}

function Step(props: { label: string; text: string; to: number; at: number; last: number; place: Place }) {
  const disabled = props.to < 1 || props.to > props.last || props.to === props.at;
  return (
    <button type="button" aria-label={props.label} disabled={disabled} onClick={() => toPage(props.place, props.to)}>
      {props.text}
    </button>
  );
}
