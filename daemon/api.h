/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The endpoints.  Each takes a call whose body is complete and answers it, now or later.
 *
 * Owner: the loop thread.
 */
#ifndef DAEMON_API_H
#define DAEMON_API_H

struct call;

/* POST /v1/completions and /v1/chat/completions (api_completions.c).  The server is ready. */
void api_completions(struct call *c);
void api_chat(struct call *c);

/* GET /v1/models and /v1/models/ID (api_models.c).  The server is ready. */
void api_models(struct call *c);
void api_model(struct call *c);
/* GET /props (api_props.c).  The server is ready. */
void api_props(struct call *c);
/* GET /health, in any state. */
void api_health(struct call *c);

/* GET /v1/requests and /v1/requests/ID (api_requests.c).  The server is ready. */
void api_requests(struct call *c);
void api_request(struct call *c);

/* POST /tokenize, /detokenize and /apply-template (api_tokenize.c).  The server is ready. */
void api_tokenize(struct call *c);
void api_detokenize(struct call *c);
void api_apply_template(struct call *c);

#endif
