// Which keys which rows of a step read: runs of blocks that several rows share, then what each has alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace dynofarm {

// A run is read once for all only if that saves as many token reads.
constexpr int LEAST_SAVED_TOKENS = 64;
// Keys of one unit of work; fixed, so that a result does not depend on the number of threads.
constexpr int UNIT_TOKENS = 128;

// The last token of each row is its newest: row r sees tokens [0, contexts[r]) of its block table.
struct StepRows {
    int count;
    const std::int32_t* contexts;
    const std::int32_t* const* tables;
    int block_tokens;

    int full_blocks(int row) const { return (contexts[row] - 1) / block_tokens; }
};

// Tokens [first, last) as the table of `rows[0]` has them, read for all `rows`.
struct Unit {
    int first;
    int last;
    const int* rows;
    int count;
    // Where the unit's results stand: partial results are numbered row by row.
    int partial;
};

class Cascade {
   public:
    void plan(const StepRows& rows) {
        units_.clear();
        members_.clear();
        // Each group is smaller than the one that it was divided from, so there are fewer than rows of them.
        members_.reserve(static_cast<std::size_t>(rows.count) * (rows.count + 1));
        own_from_.assign(rows.count, 0);
        partials_ = 0;
        pending_.assign(1, Group{std::vector<int>(rows.count), 0});
        std::iota(pending_[0].rows.begin(), pending_[0].rows.end(), 0);
        while (!pending_.empty()) {
            Group group = std::move(pending_.back());
            pending_.pop_back();
            divide(rows, group);
        }
        for (int row = 0; row < rows.count; ++row) {
            add_units(own_from_[row] * rows.block_tokens, rows.contexts[row], &row, 1);
        }
        index_partials(rows.count);
    }

    const std::vector<Unit>& units() const { return units_; }
    int partials() const { return partials_; }
    // Partial results of a row: numbers in [0, partials()).
    const std::vector<int>& of_row(int row) const { return of_row_[row]; }

   private:
    struct Group {
        std::vector<int> rows;
        int depth;
    };

    // Sub-groups of two rows or more that share the next block, each followed as deep as all of it share.
    void divide(const StepRows& rows, const Group& group) {
        taken_.assign(group.rows.size(), 0);
        for (std::size_t i = 0; i < group.rows.size(); ++i) {
            const int row = group.rows[i];
            if (taken_[i] || rows.full_blocks(row) <= group.depth) continue;
            Group sharing{{row}, group.depth};
            for (std::size_t j = i + 1; j < group.rows.size(); ++j) {
                const int other = group.rows[j];
                if (taken_[j] || rows.full_blocks(other) <= group.depth) continue;
                if (rows.tables[other][group.depth] != rows.tables[row][group.depth]) continue;
                sharing.rows.push_back(other);
                taken_[j] = 1;
            }
            if (sharing.rows.size() < 2) continue;
            sharing.depth = common_depth(rows, sharing.rows, group.depth + 1);
            share(rows, sharing);
            pending_.push_back(std::move(sharing));
        }
    }

    static int common_depth(const StepRows& rows, const std::vector<int>& members, int depth) {
        int shortest = rows.full_blocks(members[0]);
        for (int row : members) shortest = std::min(shortest, rows.full_blocks(row));
        for (; depth < shortest; ++depth) {
            for (int row : members) {
                if (rows.tables[row][depth] != rows.tables[members[0]][depth]) return depth;
            }
        }
        return depth;
    }

    void share(const StepRows& rows, const Group& group) {
        const int start = own_from_[group.rows[0]];
        const long saved = static_cast<long>(group.rows.size() - 1) * (group.depth - start) * rows.block_tokens;
        if (saved < LEAST_SAVED_TOKENS) return;
        add_units(start * rows.block_tokens, group.depth * rows.block_tokens, group.rows.data(),
                  static_cast<int>(group.rows.size()));
        for (int row : group.rows) own_from_[row] = group.depth;
    }

    void add_units(int first, int last, const int* rows, int count) {
        const std::size_t place = members_.size();
        members_.insert(members_.end(), rows, rows + count);
        for (int begin = first; begin < last; begin += UNIT_TOKENS) {
            units_.push_back({begin, std::min(last, begin + UNIT_TOKENS), members_.data() + place, count, partials_});
            partials_ += count;
        }
    }

    void index_partials(int rows) {
        of_row_.resize(std::max<std::size_t>(of_row_.size(), rows));
        for (int row = 0; row < rows; ++row) of_row_[row].clear();
        for (const Unit& unit : units_) {
            for (int i = 0; i < unit.count; ++i) of_row_[unit.rows[i]].push_back(unit.partial + i);
        }
    }

    std::vector<Unit> units_;
    // Reserved before it is filled: units point into it.
    std::vector<int> members_;
    std::vector<int> own_from_;
    std::vector<std::vector<int>> of_row_;
    std::vector<Group> pending_;
    std::vector<char> taken_;
    int partials_ = 0;
};

}  // namespace dynofarm
