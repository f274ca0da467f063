// Pages that are loaded after the first one: all but lists and the overview.

export { ApplyPage } from './pages/apply/apply';
export { KeysPage } from './pages/keys';
export { ObjectPage } from './pages/object/object';
export { ServerPage } from './pages/server';
export { StoragePage } from './pages/storage';
export { ViewsPage } from './pages/views';
export { WhoPage } from './pages/who';
